from __future__ import annotations

import pytest
from hypothesis import given

from palaver.context.fences import stretches
from tests.context.talks import texts


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("no code", []),
        ("```\ncode\n```", ["```\ncode\n```"]),
        ("a\n```py\ncode\n```\nb", ["```py\ncode\n```"]),
        ("   ```\ncode\n  ```  \nb", ["   ```\ncode\n  ```  "]),
        ("    ```\nset in too far", []),
        ("```\nnever closed", ["```\nnever closed"]),
        ("````\n```\n````\nb", ["````\n```\n````"]),
        ("```\ncode\n`````\nb", ["```\ncode\n`````"]),
        ("~~~\n```\n~~~\nb", ["~~~\n```\n~~~"]),
        ("```\n~~~\n```\nb", ["```\n~~~\n```"]),
        ("``` not `code`\nb", []),
        ("~~~ a `b` c\nd", ["~~~ a `b` c\nd"]),
        ("```\ncode\n``` no end\n```\nb", ["```\ncode\n``` no end\n```"]),
        ("a ```\nb", []),
        ("```\r\ncode\r\n```\r\nb", ["```\r\ncode\r\n```\r"]),
    ],
)
def test_what_is_code(text: str, code: list[str]) -> None:
    assert code == [text[start:stop] for start, stop, is_code in stretches(text) if is_code]


@given(texts(30))
def test_the_stretches_are_the_text(text: str) -> None:
    found = stretches(text)
    assert text == "".join(text[start:stop] for start, stop, _ in found)
    assert all(start < stop for start, stop, _ in found)
