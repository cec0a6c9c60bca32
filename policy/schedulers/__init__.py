"""Which completions a step trains on; one file per rule."""
