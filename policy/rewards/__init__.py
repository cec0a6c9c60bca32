"""Rewards of completions: reward sources, R2M with its controls, and reference probabilities."""
