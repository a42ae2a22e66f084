"""Anthropic Messages: requests, content blocks and replies."""
