"""Faults that are injected into real programs, and the table of what the user saw and whether anything was lost."""
