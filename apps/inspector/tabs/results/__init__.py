"""The results tab: results of a run on its benchmark, beside the baselines."""
