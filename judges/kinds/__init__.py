"""One file per kind of judge; each exports a factory of its name that returns a judge of many cases at once."""
