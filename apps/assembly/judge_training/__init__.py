"""Training of a generative judge: supervised on traces, then policy training on the verdict reward."""
