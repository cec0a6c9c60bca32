"""The script of the list and the case, and the functions that it calls."""
