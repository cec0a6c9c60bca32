"""`rewardlab study`: a study of a claim."""
