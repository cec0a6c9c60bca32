"""Sampling of completions from a policy, their rewards, and files of selected rows."""
