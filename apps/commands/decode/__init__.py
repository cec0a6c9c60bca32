"""`rewardlab decode`: guided decoding."""
