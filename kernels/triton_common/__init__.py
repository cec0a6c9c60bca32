"""Helpers of all Triton kernels: launching and tiles. Imported only if Triton is installed."""
