"""Making text with a language model and a reward model: guided decoding."""
