"""How long things take, each measured by a script that prints machine and spread."""
