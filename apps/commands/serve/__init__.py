"""`rewardlab serve`: a reward model behind HTTP."""
