"""One file per operation: its plain definition, a faster way, and the door that chooses."""
