"""Training once more on the previous answers; one file per rule."""
