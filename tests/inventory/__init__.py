"""What a user can call, read and load: an inventory, and small artefacts of an earlier version that have to load."""
