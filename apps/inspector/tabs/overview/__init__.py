"""The overview tab: a leaderboard of every evaluation, policy trainings, runs in progress, and damaged runs."""
