"""As much of HTTP/1.1 as a client of a provider needs: read a request, write an answer or a stream.

A stream goes out in chunks, so that a client can tell a stream that ended from one that was cut.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

__all__ = ["Line", "Request"]

_LARGEST: Final = 256 * 1024 * 1024


class Request(NamedTuple):
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Line:
    """One connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take what asyncio gives."""
        self._reader = reader
        self._writer = writer
        self._early = b""

    async def request(self) -> Request | None:
        """The next request; None where the client has gone, or speaks something else."""
        try:
            head = self._early + await self._reader.readuntil(b"\r\n\r\n")
            self._early = b""
            first, *lines = head.decode("latin-1").strip().split("\r\n")
            method, path, _ = first.split(" ", 2)
            pairs = (line.partition(":") for line in lines)
            headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            size = min(int(headers.get("content-length", "0")), _LARGEST)
            return Request(method, path, headers, await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError):
            return None

    async def gone(self) -> None:
        """Return when the client has gone away: before an answer is whole, it says nothing else."""
        try:
            while more := await self._reader.read(1):
                self._early += more
        except OSError:
            return

    async def answer(
        self, status: int, kind: str, body: bytes, *, headers: dict[str, str], sent: int | None
    ) -> None:
        """Write a whole answer, or the first `sent` bytes of it."""
        await self._head(status, {"content-type": kind, "content-length": len(body), **headers})
        self._writer.write(body if sent is None else body[:sent])
        await self._writer.drain()

    async def begin(self, kind: str) -> None:
        """Begin a stream."""
        fields = {"content-type": kind, "cache-control": "no-cache", "transfer-encoding": "chunked"}
        await self._head(200, dict(fields))

    async def chunk(self, data: bytes) -> None:
        """Write a piece of a stream; an empty one ends it."""
        self._writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await self._writer.drain()

    def close(self) -> None:
        """Hang up."""
        self._writer.close()

    async def _head(self, status: int, headers: dict[str, str | int]) -> None:
        lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {v}" for name, v in headers.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        await self._writer.drain()
