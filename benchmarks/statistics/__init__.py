"""Statistics of benchmarks and studies: bootstrap of clusters, fronts of rewards, over-optimisation, style."""
