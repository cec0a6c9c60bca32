"""`rewardlab doctor`: versions, devices and packages of this machine."""
