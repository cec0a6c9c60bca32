"""Aggregations: token weights [N, L] in the loss, with which `kernels.policy_loss` sums tokens.

`completions` and `tokens` are the totals over which a sum of 1 is spread: those of the complete optimizer step, over
all micro-batches and processes. A mean per micro-batch would make a token's weight depend on the other completions in
its micro-batch.
"""
