"""`rewardlab card`: a model card."""
