"""One file per loss; each file exports one factory with the file's name."""
