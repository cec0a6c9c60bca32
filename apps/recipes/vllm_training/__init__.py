"""Policy training with completions by vLLM, served rewards and a served judge on one machine."""
