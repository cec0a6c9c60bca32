"""`rewardlab judge`: language models as judges."""
