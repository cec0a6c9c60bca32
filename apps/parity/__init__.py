"""`rewardlab parity`: one model, every way to get its scores, and what makes a difference."""
