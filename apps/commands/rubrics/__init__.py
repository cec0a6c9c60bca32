"""`rewardlab rubrics`: rubrics from contrast."""
