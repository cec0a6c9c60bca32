"""Guided decoding: requests, engines, KV cache, sampling loop, search, speculation and vLLM."""
