"""HTTP server for a reward model, with the protocols of rewardlab, vLLM and OpenRLHF; and its client."""
