"""What leaves a machine: model cards, results in the formats of others, uploads to the Hugging Face Hub."""
