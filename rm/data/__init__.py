"""Preference data: pairs, conversations, readers, streaming, lint, contamination and leakage."""
