"""Publishing: model cards, results in the formats of other tools, and uploads to the Hugging Face Hub."""
