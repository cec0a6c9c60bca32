"""The inspector in the browser: components and events only; `inspector_views` knows what they show."""

import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # Gradio reads it before every message to its makers

from .server import launch, serve
from .site import build

__all__ = ["build", "launch", "serve"]
