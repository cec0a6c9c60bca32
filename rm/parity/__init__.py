"""Parity of a reward model with other ways to score, and the faults that explain a difference."""
