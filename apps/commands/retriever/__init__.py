"""`rewardlab retriever`: train the encoder by which judges retrieve examples and rubrics."""
