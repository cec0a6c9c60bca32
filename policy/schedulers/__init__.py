"""Which answers a step trains on; one file per rule."""
