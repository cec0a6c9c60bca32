"""Guided decoding: requests, engines, steps of a batch, search, speculation and vLLM."""
