"""`rewardlab score`: rewards of conversations in files."""
