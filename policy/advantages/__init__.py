"""Rewards -> how much better an answer, or a token of it, was than expected; one file per formula."""
