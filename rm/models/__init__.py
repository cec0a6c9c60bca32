"""One file per kind of reward model; the file's name is the kind's name."""
