"""The one version of Harebell, read by both distributions."""

__version__ = "0.1.0"
