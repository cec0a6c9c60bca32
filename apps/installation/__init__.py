"""Installed packages: the extras, the error message about a missing extra, and facts about the machine."""
