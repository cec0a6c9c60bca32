"""The command line, run folders and the inspector: the only place with paths and screens."""
