"""The vocabulary (pairs, contract, protocols), every reward model, and their training."""
