"""Schedulers: weights of a step's completions in training; one module per rule."""
