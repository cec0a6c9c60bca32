"""A reward model behind HTTP: our own protocol, vLLM's and OpenRLHF's; and the client for it."""
