"""The inspector, a web page for runs. Each tab has a view (Gradio) and queries (no Gradio); `server` starts it."""

import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # Gradio reads it before every message to its makers
