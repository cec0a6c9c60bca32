"""Rollout functions: search, partner models, and vLLM servers; one module per function."""
