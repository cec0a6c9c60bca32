"""How much every token weighs in the loss: weights [N, L] that `kernels.policy_loss` adds up with.

`completions` and `tokens` count those that the weights' sum of 1 is spread over: those of the whole optimisation step,
over all its micro-batches and processes. A mean over a micro-batch would weigh a step's tokens by the company they
happen to be in.
"""
