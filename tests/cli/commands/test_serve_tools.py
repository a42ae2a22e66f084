"""`palaver serve --tools` with tools that can't be used: one sentence, status 2, no address."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

TOOLS = """
import sys
from palaver.tools import tool
from palaver.tools.mcp import McpServer

dead = McpServer.stdio("/there/is/no/such/program", name="dead")
away = McpServer.http("http://127.0.0.1:9/mcp")
silent = McpServer.stdio(sys.executable, "-c", "import sys; sys.stdin.read()", name="silent",
                         connect_timeout=1.0)
invalid = McpServer.stdio(sys.executable, {program!r}, name="invalid")

@tool
def calculate(expression: str) -> str:
    "Calculate."
    return expression

class Broken:
    async def __aenter__(self):
        raise RuntimeError("out of order")
    async def __aexit__(self, *_):
        pass

broken = Broken()
"""
INVALID = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        answers = {
            "initialize": {
                "protocolVersion": asked.get("params", {}).get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "invalid", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "array"}}]},
        }
        result = {"result": answers[asked["method"]]} if asked["method"] in answers else {
            "error": {"code": -32601, "message": "unknown"}
        }
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **result}), flush=True)
"""


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("dead", "dead: [Errno 2] No such file or directory: '/there/is/no/such/program'"),
        ("away", "http://127.0.0.1:9/mcp: All connection attempts failed"),
        ("silent", "silent: no answer in 1 seconds"),
        ("invalid", "invalid: its answer is invalid: tools.0.inputSchema.type: "),
        ("calculate", "there are two tools named 'calculate'"),
        ("broken", "Broken: out of order"),
    ],
)
def test_tools_that_can_not_be_used_end_the_command_before_an_address_is_printed(
    palaver: Callable[..., subprocess.CompletedProcess[bytes]],
    tmp_path: Path,
    name: str,
    sentence: str,
) -> None:
    program = tmp_path / "invalid.py"
    program.write_text(INVALID)
    (tmp_path / "some_tools.py").write_text(TOOLS.format(program=str(program)))
    path = f"{tmp_path}:{':'.join(sys.path)}"
    done = palaver(
        "serve", "--port", "0", "--no-open", "--store", ":memory:", "--tools", f"some_tools:{name}",
        "--token-file", str(tmp_path / "token"), PYTHONPATH=path,
    )  # fmt: skip
    assert (2, b"") == (done.returncode, done.stdout)
    told = done.stderr.decode().splitlines()  # a program may have its own last words
    (line,) = (one for one in told if one.startswith("palaver: --tools: "))
    assert sentence in line
