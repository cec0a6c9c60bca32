"""Capacity planning: operations, memory and time of training and decoding on GPUs, by formula."""
