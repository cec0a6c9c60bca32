"""How many elements kernels work on at a time; without imports, since `rm.capacity` predicts memory from it."""

LINEAR_LOGPROB_CHUNK = {"cpu": 2**24, "cuda": 2**28}
"""Logits that `linear_logprob` holds at a time: 64 MB and 1 GB in float32."""
LINEAR_LOGPROB_BLOCK = 2**18
"""Logits that a CPU works on at a time: 1 MB stays in its cache."""
