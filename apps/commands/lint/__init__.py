"""`rewardlab lint`: defects of preference data."""
