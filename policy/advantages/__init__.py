"""Rewards -> how much better a completion, or a token of it, was than expected; one file per formula."""
