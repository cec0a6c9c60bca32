"""Policies: training with reward models, and guided decoding."""
