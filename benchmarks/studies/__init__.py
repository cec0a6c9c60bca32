"""One file per study; each returns its tables and its figure."""
