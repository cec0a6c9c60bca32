"""`rewardlab verify`: a run's tables computed again from its scores."""
