"""Toy worlds whose true reward is a known function, with small models, simulated judges and a simulated server."""
