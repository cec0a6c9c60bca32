"""Aggregations: token weights [N, L] of the sum over tokens in the loss (`kernels.policy_loss`).

`completions` and `tokens` are the numbers of completions and of tokens in one generation phase, over all micro-batches
and processes; the weights of these tokens sum to 1. With several optimizer steps per generation
(`steps_per_generation`), the sum of a step's weights is 1 on average, and larger for a step with more or longer
completions.
"""
