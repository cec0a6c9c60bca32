"""Benchmarks: suites, scorers and reports, statistics, and a toy world with a known reward."""
