"""TODO: list the modules of this package."""
