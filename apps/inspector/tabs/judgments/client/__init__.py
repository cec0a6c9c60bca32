"""The script that displays the list of cases and one case, and the server functions that the script calls."""
