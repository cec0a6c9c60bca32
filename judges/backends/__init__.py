"""Language model backends of judges: OpenAI-compatible endpoints, local models and scripted replies."""
