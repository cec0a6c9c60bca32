"""Backbones: loading, tokenization, chat templates, packing, log-probabilities and value heads."""
