"""The engine of guided decoding: one step of a batch as a function of tensors on its device.

A step is forward passes, sampler and log. Keys and values have their places before the first token, and everything that
changes from token to token (token, position, the slot that is written, the column of the log) is a tensor on the
device. So no step waits for the device, and on a GPU a step is one CUDA graph, captured once and replayed; a CPU runs
the same function. The host reads the tokens after each block, 16 tokens on a GPU and one on a CPU, and discards those
behind a completion's end.
"""
