"""Training of policies on reward models, judges and functions. The result is a run folder."""
