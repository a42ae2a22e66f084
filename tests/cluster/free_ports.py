"""`python -m tests.cluster.free_ports` prints a free port that free ones follow."""

from __future__ import annotations

import random
import socket
import sys
from contextlib import ExitStack

NODES = 3
"""A coordinator and two workers."""


def free_ports(count: int = NODES) -> int:
    """Return the first of so many ports in a row that nobody listens on."""
    while True:
        first = random.randrange(20_000, 32_000, 10)  # noqa: S311 - below those that are given out
        try:
            with ExitStack() as taken:
                for port in range(first, first + count):
                    taken.enter_context(socket.socket()).bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


if __name__ == "__main__":
    sys.stdout.write(f"{free_ports()}\n")
