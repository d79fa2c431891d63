"""Version of the package, which setup.cfg reads."""

__version__ = "1.0.0"
