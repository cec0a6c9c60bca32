"""Scaffold schedules: the share of hints for each completion of a group; one module per formula."""
