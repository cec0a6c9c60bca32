"""Benchmark suites, one file each: data format, sections of subsets, and the authors' aggregation."""
