"""Policy training: the trainer on TRL's GRPOTrainer, critic, replay buffer, checkpoints and metrics."""
