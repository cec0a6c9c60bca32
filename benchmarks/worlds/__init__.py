"""Small worlds whose true reward is a function."""
