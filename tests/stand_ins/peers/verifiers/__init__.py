"""The part of verifiers that our judge uses."""
