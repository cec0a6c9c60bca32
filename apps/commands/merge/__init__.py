"""`rewardlab merge`: an adapter or value-head checkpoint as a plain folder."""
