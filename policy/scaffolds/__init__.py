"""How much help each answer of a group is written with; one file per formula."""
