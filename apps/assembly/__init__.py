"""Combinations of judges, reward models and training: judge training, judges as rewards, probes fitted to runs."""
