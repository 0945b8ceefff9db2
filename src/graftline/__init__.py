"""graftline: a unified radix cache for hybrid language models."""

__version__ = "0.1.0"
