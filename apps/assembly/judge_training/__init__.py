"""Training of a generative judge: supervised fine-tuning on traces, then policy training on the verdict reward."""
