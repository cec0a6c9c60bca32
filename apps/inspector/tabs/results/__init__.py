"""The results tab: a run on its benchmark, beside the baselines."""
