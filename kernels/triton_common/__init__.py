"""What the Triton kernels share: launching and tiles. Imported only where Triton is installed."""
