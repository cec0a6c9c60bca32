"""`rewardlab parity`: scores of one model in several implementations."""
