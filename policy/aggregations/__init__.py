"""Aggregations: token weights [N, L] in the loss, with which `kernels.policy_loss` sums tokens.

`completions` and `tokens` are the totals over which a sum of 1 is spread: those of all completions that are generated
together, over all micro-batches and processes. With several optimizer steps per generation (`steps_per_generation`),
the sum of a step's weights is 1 on average and larger for a step with more or longer completions.
"""
