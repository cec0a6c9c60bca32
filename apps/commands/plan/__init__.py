"""`rewardlab plan`: memory and time of a job, by formula."""
