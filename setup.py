"""Find the product's packages, every folder of its levels as `rewardlab.LEVEL`; the rest is in pyproject.toml."""

from setuptools import find_namespace_packages, setup

LEVELS = ("kernels", "rm", "judges", "policy", "benchmarks", "apps")
found = find_namespace_packages(include=[*LEVELS, *(f"{level}.*" for level in LEVELS)], exclude=["*.__pycache__"])
# Named, the script itself is left out of the package at the root.
setup(script_name="setup.py", packages=["rewardlab", *(f"rewardlab.{package}" for package in found)])
