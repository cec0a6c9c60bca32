"""`rewardlab retriever`: train an encoder with which judges retrieve examples and rubrics."""
