"""`rewardlab inspect`: the inspector."""
