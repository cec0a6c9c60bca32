"""Policy losses: clip rules applied by `kernels.policy_loss`, and losses of whole completions; one module each."""
