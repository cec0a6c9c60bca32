"""Run folders: locks, manifests, tables, resume, signals and processes."""
