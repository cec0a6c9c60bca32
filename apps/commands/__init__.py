"""The commands of `rewardlab`: one package per command, with the settings and the function of the command."""
