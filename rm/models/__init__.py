"""Kinds of reward models, one module per kind, named after it."""
