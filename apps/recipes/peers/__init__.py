"""Adapters for other training and evaluation libraries: the scoring server as a reward, judges as scorers."""
