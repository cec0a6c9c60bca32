"""Rewards that depend on the training run, one file each; `rewardlab rl --reward NAME(key=value, ...)`."""
