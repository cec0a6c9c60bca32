"""The engine of guided decoding: one step of a batch as a function of tensors on its device.

A step consists of forward passes, sampler and log. Keys and values are allocated before the first token. All state that
changes with each token (token, position, cache slot, column of the log) is a tensor on the device, so that the host
never waits for the device within a step. On a GPU a step is one CUDA graph, captured once and replayed; a CPU runs the
same function. The host reads the tokens after each block of 16 tokens on a GPU, or one token on a CPU, and discards
tokens after the end of a completion.
"""
