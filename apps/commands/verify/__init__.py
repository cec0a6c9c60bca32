"""`rewardlab verify`: recompute a run's tables from its scores."""
