"""The training tab: metrics of a policy's training, rollouts and advantages."""
