"""One step of policy training, without a trainer: rollout -> rewards and advantages -> loss inputs -> loss."""
