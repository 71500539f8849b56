"""The version of the package, the one place that hatchling reads."""

__version__ = "0.1.0"
