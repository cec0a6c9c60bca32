"""The compare tab: two scorers on the same cases."""
