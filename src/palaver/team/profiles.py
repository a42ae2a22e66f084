"""The programs that palaver knows how to call, in one table.

Each row was checked against the program's own help: claude 2.1.325, codex-cli 0.166.0, gemini
0.61.0. All read the prompt on standard input, so that no prompt is too long for an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BESIDE", "PLAIN", "PROFILES", "Profile"]

BESIDE: Final = "claude-code"
"""The form whose system text stands beside the prompt."""
PLAIN: Final = "plain"
"""The form of programs that nobody knows."""


class Profile(Struct, frozen=True):
    """How a program is called: its arguments, the form of its prompt, where system text goes.

    `variables` name the folder where the program has its login and settings, if it is not in HOME.
    """

    argv: tuple[str, ...]
    format: str
    system_flag: str | None = None
    system_file_flag: str | None = None
    variables: tuple[str, ...] = ()


PROFILES: Final[Mapping[str, Profile]] = {
    # `--append-system-prompt-file` is not in the list of options, but in the text on `--bare`;
    # the program takes it, and says so where the file is missing
    "claude": Profile(
        ("claude", "-p", "--output-format", "text"),
        BESIDE,
        "--append-system-prompt",
        "--append-system-prompt-file",
        ("CLAUDE_CONFIG_DIR",),
    ),
    # `-` is standard input; the answer is on standard output, progress on standard error
    "codex": Profile(
        ("codex", "exec", "--skip-git-repo-check", "--color", "never", "-"),
        "openai-codex",
        variables=("CODEX_HOME",),
    ),
    # without a terminal it runs headless, and `-p TEXT` would only be added to standard input
    "gemini": Profile(("gemini", "--output-format", "text"), "google-gemini"),
}
"""The profiles by name. A flag that changes is a row that changes here."""
