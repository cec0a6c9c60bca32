"""Runs of studies: jobs with a cache, worker processes, and policies trained in the garden world."""
