"""Language models that judges ask: OpenAI-compatible endpoints, local models and scripted replies."""
