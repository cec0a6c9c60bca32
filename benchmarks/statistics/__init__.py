"""TODO benchmarks/statistics."""
