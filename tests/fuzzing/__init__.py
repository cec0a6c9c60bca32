"""Loaders fed with bent files: a sentence of ours, or what the file says, and nothing else."""
