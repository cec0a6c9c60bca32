"""A clip rule -> which ratios count in a policy loss; `kernels.policy_loss` applies it, one file per rule."""
