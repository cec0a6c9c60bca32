"""Benchmarks: suites, scorers and reports, toy worlds with known rewards, studies of published claims, speed."""
