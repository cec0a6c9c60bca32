"""Composition of a policy algorithm: transforms, advantages, losses over completions, and its check."""
