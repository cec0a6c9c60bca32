"""What is fuzzed: a file for each family, whose function of the same name returns its targets."""
