"""JavaScript of the whole page: addresses and history, and what can be copied."""
