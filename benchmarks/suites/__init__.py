"""One file per benchmark: which section a subset belongs to, and how its authors add up."""
