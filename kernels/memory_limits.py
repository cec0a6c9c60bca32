"""Numbers of elements that kernels process at a time; `rm.capacity` reads them without importing the kernels."""

LINEAR_LOGPROB_CHUNK = {"cpu": 2**24, "cuda": 2**28}
"""Number of logits that `linear_logprob` holds at a time, by device: 64 MB and 1 GB in float32."""
LINEAR_LOGPROB_BLOCK = 2**18
"""Number of logits that a CPU processes at a time: 1 MB fits its cache."""
