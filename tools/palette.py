"""Screenshots as small files: a PNG of at most 256 colours, where a browser writes one of millions.

The browser that took the picture counts its colours and picks the palette; here the indexed PNG is
written. A page of text and flat surfaces loses nothing that an eye would miss, and two thirds of
its bytes.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["indexed_png", "reduced"]

_COUNT: Final = """
async (png) => {
  const file = await fetch(`data:image/png;base64,${png}`);
  const picture = await createImageBitmap(await file.blob());
  const { width, height } = picture;
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.drawImage(picture, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  const counts = new Map();
  const colours = new Uint32Array(width * height);
  for (let at = 0; at < colours.length; at++) {
    const colour = (data[4 * at] << 16) | (data[4 * at + 1] << 8) | data[4 * at + 2];
    colours[at] = colour;
    counts.set(colour, (counts.get(colour) ?? 0) + 1);
  }
  const palette = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 256).map(([colour]) => colour);
  const nearest = new Map(palette.map((colour, index) => [colour, index]));
  const find = (colour) => {
    let best = 0;
    let least = Infinity;
    palette.forEach((one, index) => {
      const [r, g, b] = [16, 8, 0].map((bits) => ((one >> bits) & 255) - ((colour >> bits) & 255));
      const far = r * r + g * g + b * b;
      if (far < least) [best, least] = [index, far];
    });
    nearest.set(colour, best);
    return best;
  };
  const pixels = Uint8Array.from(colours, (colour) => nearest.get(colour) ?? find(colour));
  let text = "";
  for (let at = 0; at < pixels.length; at += 8192) {
    text += String.fromCharCode(...pixels.subarray(at, at + 8192));
  }
  return { width, height, palette, pixels: btoa(text) };
}
"""


def reduced(page: Page, png: bytes) -> bytes:
    """A picture with its 256 commonest colours; the others become the nearest of them.

    The page is only where it is worked out, and must allow data: addresses (`about:blank` does).
    """
    found = page.evaluate(_COUNT, base64.b64encode(png).decode())
    pixels = base64.b64decode(found["pixels"])
    return indexed_png(found["width"], found["height"], found["palette"], pixels)


def indexed_png(width: int, height: int, palette: list[int], pixels: bytes) -> bytes:
    """A PNG of colours (0xRRGGBB) and one byte a pixel, row by row.

    >>> indexed_png(1, 1, [0x2F55C8], bytes([0]))[1:4]
    b'PNG'
    """
    rows = b"".join(
        b"\0" + pixels[start : start + width] for start in range(0, width * height, width)
    )
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", b"".join(colour.to_bytes(3, "big") for colour in palette)),
            _chunk(b"IDAT", zlib.compress(rows, 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
