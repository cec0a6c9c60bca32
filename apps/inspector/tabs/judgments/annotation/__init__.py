"""Annotations of cases: stored beside a run, shown, and counted."""
