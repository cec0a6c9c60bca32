"""How much help each completion of a group is written with; one file per formula."""
