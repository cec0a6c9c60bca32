"""Curricula: rules that set the share of each kind of prompt in the next step; one module per rule."""
