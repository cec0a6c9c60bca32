"""Training of reward models: trainer, tasks, checkpoints, fault tolerance and several processes."""
