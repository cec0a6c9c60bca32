"""Combinations of the levels below: training of judges, judges as rewards, routing fitted to finished runs."""
