"""`rewardlab world`: the toy world as files."""
