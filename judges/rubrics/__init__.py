"""Rubrics: types, score functions, public formats, and rubric files in TOML."""
