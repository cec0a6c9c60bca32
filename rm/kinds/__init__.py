"""Kinds of reward models, one package per kind, each with a function, named as the kind, that returns a `Kind`."""
