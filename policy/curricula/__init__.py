"""Curricula: shares of the kinds of prompts in the next step; one module per rule."""
