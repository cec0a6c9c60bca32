"""Applications: the command line, the Python API, run folders, the scoring server and the inspector."""
