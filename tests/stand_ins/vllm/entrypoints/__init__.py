"""A stand-in for vLLM that needs neither torch nor a second to start; for tests that have it on PYTHONPATH."""
