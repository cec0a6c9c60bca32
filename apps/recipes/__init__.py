"""Recipes: YAML files with the settings of complete runs."""
