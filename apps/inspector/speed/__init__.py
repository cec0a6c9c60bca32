"""Measurements of the inspector: its queries, and its page in a browser."""
