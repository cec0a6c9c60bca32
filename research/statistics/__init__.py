"""Statistics of studies: fronts of rewards, over-optimisation, power, routing."""
