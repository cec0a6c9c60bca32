"""Kinds of reward models, one package per kind, each with a function of its name that returns its `Kind`."""
