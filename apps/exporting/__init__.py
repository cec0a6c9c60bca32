"""`rewardlab merge` and `rewardlab card`: a reward model for others, as a plain folder and with a page about it."""
