"""`rewardlab board`: a leaderboard of many runs."""
