"""`rewardlab rubrics`: built from preferences, learnt, linted, applied, and read from files."""
