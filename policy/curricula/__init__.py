"""Which kinds of prompts come next; one file per rule."""
