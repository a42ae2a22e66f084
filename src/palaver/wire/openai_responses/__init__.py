"""OpenAI Responses: requests, items and replies."""
