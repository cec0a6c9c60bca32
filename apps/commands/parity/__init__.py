"""`rewardlab parity`: one model scored in every way."""
