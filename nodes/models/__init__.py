"""Models: finding them by name, calling them, and reading their answers."""
