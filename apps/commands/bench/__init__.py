"""`rewardlab bench`: speed and memory benchmarks."""
