"""Parsing of replies: verdicts, scores and JSON, or a reason for an abstention."""
