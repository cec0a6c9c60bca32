"""`rewardlab rl`: policy training."""
