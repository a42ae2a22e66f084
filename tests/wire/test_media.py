"""Files as a request can hold them; nothing is fetched, and no path of this machine goes out."""

from __future__ import annotations

import pytest

from palaver.messages import file_part
from palaver.wire.format import Inline, Linked, is_image, is_text, media_of, text_of
from tests.wire.pieces import S


def media(url: str, mime: str = "image/png") -> Inline | Linked | None:
    """How such a file goes out."""
    return media_of(file_part(S, S, mime, url))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("data:image/png;base64,aGk=", Inline("image/png", "aGk=")),
        ("DATA:image/png;BASE64,aGk=", Inline("image/png", "aGk=")),
        ("data:,hello%20there", Inline("image/png", "aGVsbG8gdGhlcmU=")),
        ("data:image/png;base64,", None),
        ("data:,", None),
        ("data:image/png;base64", None),
        ("data:image/png;base64,a*k=", None),
        ("data:image/png;base64,aGk", None),
        ("data:image/png;base64,aGk=é", None),
        ("https://example.org/a.png", Linked("image/png", "https://example.org/a.png")),
        ("HTTP://example.org", Linked("image/png", "HTTP://example.org")),
        ("gs://bucket/a", Linked("image/png", "gs://bucket/a")),
        ("https://", None),
        ("https:///a", None),
        ("https://example.org/a b", None),
        ("file:///etc/passwd", None),
        ("/etc/passwd", None),
        ("ftp://example.org/a", None),
    ],
)
def test_how_a_file_goes_out(url: str, expected: Inline | Linked | None) -> None:
    assert expected == media(url)


def test_a_type_is_written_small() -> None:
    assert Inline("image/png", "aGk=") == media("data:;base64,aGk=", "IMAGE/PNG")
    assert "data:image/png;base64,aGk=" == Inline("image/png", "aGk=").url


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Inline("image/webp", "aGk="), True),
        (Inline("image/tiff", "aGk="), False),
        (Linked("image/tiff", "https://example.org/a"), True),
        (Linked("image/png", "gs://bucket/a"), False),
        (Linked("text/plain", "https://example.org/a"), False),
        (None, False),
    ],
)
def test_what_every_provider_reads_as_an_image(
    given: Inline | Linked | None,
    expected: bool,  # noqa: FBT001 - a case of the table
) -> None:
    assert expected is is_image(given)


def test_what_can_be_sent_as_words() -> None:
    assert [True, True, True, False] == [
        is_text(mime) for mime in ("text/css", "application/json", "application/xml", "image/png")
    ]
    assert "hi" == text_of(Inline("text/plain", "aGk="))
    assert "ab" == text_of(Inline("text/plain", "YQBi"))
    assert text_of(Inline("text/plain", "/w==")) is None
