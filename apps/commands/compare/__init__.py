"""`rewardlab compare`: differences between two runs."""
