"""What a piece of work asks of GPUs, by formula: operations, bytes, and from them a plan."""
