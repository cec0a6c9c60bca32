"""Replays: additional training on previous completions; one module per rule."""
