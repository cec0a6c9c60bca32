"""`rewardlab sample`: training data from the best of several completions."""
