"""Rewards that need to know the run they serve, one file each; `rewardlab rl --reward NAME(key=value, ...)`."""
