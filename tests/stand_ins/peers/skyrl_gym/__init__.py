"""The part of skyrl-gym that our environment uses."""

from .envs import make

__all__ = ["make"]
