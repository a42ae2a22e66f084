"""Gemini generateContent: requests, parts and replies."""
