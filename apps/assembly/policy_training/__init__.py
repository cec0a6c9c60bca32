"""Training of policies on reward models, judges and functions, as a run folder."""
