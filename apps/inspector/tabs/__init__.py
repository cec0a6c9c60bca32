"""The tabs of the inspector: a package each, with its view (Gradio) and its queries (no Gradio)."""
