"""Reward models: data types, scoring contract, models, losses, and training."""
