"""Training of reward models: trainer, tasks, checkpoints, fault tolerance and several processes."""

CHECKPOINTS = "checkpoints"
"""Folder of a training's checkpoints, in its run folder."""
