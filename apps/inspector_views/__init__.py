"""What the inspector shows: pure functions over run folders, from queries to HTML and figures. No Gradio here."""
