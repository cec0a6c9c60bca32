"""The scoring contract of a reward model, its golden scores, and parity with other ways to score."""
