"""`rewardlab rubrics`: rubrics from contrasts of chosen and rejected responses."""
