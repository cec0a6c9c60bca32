"""`rewardlab eval`: a benchmark with models and baselines."""
