"""The scoring contract of a reward model, and its golden scores."""
