"""Version lanes: the tests in environments with other versions than the development environment's."""
