"""Transcripts of other programs, detected by content and read with a note for all that is lost.

    claude-code                            Claude Code, a session's JSON lines
    codex                                  Codex CLI, a rollout's JSON lines, or its older JSON
    codex-exec                             what `codex exec --json` prints
    gemini-cli                             Gemini CLI, a session's JSON, or its lines
    copilot-cli                            GitHub Copilot CLI, `events.jsonl`, or its older JSON
    chatgpt                                ChatGPT's data export, `conversations.json`
    opencode, -export, -folder             opencode: its database, its export, its older folder
    llm                                    simonw's llm, `logs.db`
    requests                               requests to OpenAI, Anthropic or Gemini, as JSON lines
    openai-chat, openai-responses,
    anthropic, gemini                      one request
    messages                               palaver's own JSON, as a list or as lines

Each program has its own module; blocks of providers' formats are read by `palaver.wire`. Damage
costs only what is damaged. Reading a file twice gives the same messages, except in formats that
have neither ids nor times.
"""

from __future__ import annotations

from palaver.transcripts.readers import READERS, detect, each_conversation, read_transcript

__all__ = ["READERS", "detect", "each_conversation", "read_transcript"]
