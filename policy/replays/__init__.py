"""Training once more on the previous completions; one file per rule."""
