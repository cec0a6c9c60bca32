"""`rewardlab judge`: language models as judges of cases and of a policy's answers."""
