"""Transcripts of other tools: told apart by content, read with a note for whatever was not kept.

    claude-code                            Claude Code, a session's JSON lines
    codex                                  Codex CLI, a rollout's JSON lines
    opencode, -export, -folder             opencode: its database, its export, its older folder
    llm                                    simonw's llm, `logs.db`
    requests                               requests to OpenAI, Anthropic or Gemini, as JSON lines
    openai-chat, openai-responses,
    anthropic, gemini                      one request
    messages                               palaver's own JSON, as a list or as lines

One file a format. Damage costs what is damaged: the rest is read. Reading twice gives the same
messages, but for formats that know neither ids nor times.
"""

from __future__ import annotations

from palaver.wire.transcripts.detecting import detect
from palaver.wire.transcripts.reading import FORMATS, each_conversation, read_transcript

__all__ = ["FORMATS", "detect", "each_conversation", "read_transcript"]
