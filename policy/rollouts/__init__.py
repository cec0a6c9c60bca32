"""Completions of a policy's training that a search finds; one file per rule."""
