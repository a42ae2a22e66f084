"""OpenAI's clients in front of a palaver server."""
