"""Studies of published claims, toy worlds, speed, and their results: in a checkout, not in the wheel."""
