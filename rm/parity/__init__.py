"""Parity of a reward model's scores with those of other backends, and the faults that explain a difference."""
