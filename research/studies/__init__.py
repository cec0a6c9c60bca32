"""Studies of published claims; each returns its report, figures and facts."""
