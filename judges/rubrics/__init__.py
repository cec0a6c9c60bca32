"""Rubrics: the type, its scoring, public formats, and rubrics in TOML."""
