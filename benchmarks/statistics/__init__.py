"""Statistics of benchmarks: cluster bootstrap, tests, calibration, Pareto fronts and dependence on style."""
