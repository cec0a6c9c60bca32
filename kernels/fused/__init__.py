"""The operations of `kernels.ops` as Triton kernels, each file a launcher `fused`; imported where Triton is."""
