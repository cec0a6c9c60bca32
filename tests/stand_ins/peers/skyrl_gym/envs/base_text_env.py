"""Environments of texts."""

BaseTextEnvStepOutput = dict


class BaseTextEnv:
    """The base class."""
