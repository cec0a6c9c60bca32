"""Transforms of rewards and advantages; one module per formula."""
