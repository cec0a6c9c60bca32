"""`rewardlab train`: training of reward models."""
