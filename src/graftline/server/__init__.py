"""The OpenAI-compatible HTTP surface over the engine."""
