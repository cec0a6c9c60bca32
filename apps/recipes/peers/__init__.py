"""Adapters for other training and evaluation libraries: our scoring server as a reward, our judges as scorers."""
