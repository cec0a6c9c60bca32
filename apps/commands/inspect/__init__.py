"""`rewardlab inspect`: a web page for runs."""
