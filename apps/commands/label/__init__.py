"""`rewardlab label`: preference pairs and scores of responses by reward models and judges."""
