"""The part of inspect_ai that our scorers use."""
