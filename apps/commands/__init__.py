"""One package per verb of the command line: its settings and its function."""
