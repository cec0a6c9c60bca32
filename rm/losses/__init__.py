"""Loss functions of reward models, one module per loss, each with a factory of the module's name."""
