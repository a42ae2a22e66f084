"""Secrets do not get into what is stored of an error."""

from __future__ import annotations

import time

import pytest

from palaver.messages.redaction import REDACTED, is_secret_name, redact

KEY = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"401: wrong key {KEY}.", KEY),
        ("https://api/x?key=AIzaSyA-1234567890abcdefghijklmnopqrstu&y=1", "AIzaSyA"),
        ("header {'Authorization': 'Bearer abc.def-123456'}", "abc.def"),
        ("Authorization: Basic YW5uOmh1bnRlcjI=", "YW5uOmh1"),
        ("Proxy-Authorization: token 0123456789abcdef", "0123456789"),
        ("bearer ABCDEFGHIJKLMNOPQRSTUVWXYZ was refused", "ABCDEFG"),
        ("postgresql://ann:hunter2@db.example/tea is down", "hunter2"),
        ("https://:tok3n@github.com/x.git", "tok3n"),
        ("host=db password=hunter22 user=ann", "hunter22"),
        ('{"api_key": "hunter-2-hunter", "model": "x"}', "hunter"),
        ("POST /?access_token=abcdef0123&q=1", "abcdef0123"),
        ("ghp_0123456789abcdefghijABCDEFGHIJ expired", "ghp_0123"),
        ("xoxb-1234567890-abcdefghij", "1234567890"),
        ("AKIAIOSFODNN7EXAMPLE is disabled", "AKIAIOSFODNN7EXAMPLE"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "eyJzdWIi"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- end", "MIIE"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE cut off", "MIIE"),
    ],
)
def test_what_has_the_shape_of_a_key_goes(text: str, secret: str) -> None:
    cleaned = redact(text, {})
    assert (True, False) == (REDACTED in cleaned, secret in cleaned), cleaned
    assert cleaned == redact(cleaned, {}), "once is enough"


@pytest.mark.parametrize(
    "text",
    [
        "no such file: /home/ann/notes.txt",
        "$.password: must not be empty [schema]",
        "token: expected ')' at line 3",
        "Basic authentication is required",
        "the Bearer token is missing",
        "see https://example.org/a:b/c@d and mailto:ann@example.org",
        "task-force, risk-averse-and-not-a-secret, desk-lamp",
        "KeyError: 'amount'",
        "max_tokens=1000000 is too much",
        "http://127.0.0.1:8000/mcp: no answer in 30 seconds",
    ],
)
def test_harmless_text_is_unchanged(text: str) -> None:
    assert text == redact(text, {})


def test_values_of_the_environment_go_in_every_spelling() -> None:
    environ = {
        "SHOP_TOKEN": "tea/pot & co",
        "PIN_SECRET": "1234",
        "GREETING": "good morning",
        "STORE": "postgres://ann:rosebud99@db/tea",
        "PEM_KEY": "first line of the key\nsecond line of the key",
    }
    text = "tea/pot & co, tea%2Fpot%20%26%20co, tea%2Fpot+%26+co, 1234, good morning, rosebud99"
    assert f"{', '.join([REDACTED] * 3)}, 1234, good morning, {REDACTED}" == redact(text, environ)
    assert f"bad: {REDACTED}" == redact("bad: second line of the key", environ)
    assert REDACTED == redact(r"first line of the key\nsecond line of the key", environ)


def test_this_processs_environment_is_looked_at_now(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "wrong: opensesame" == redact("wrong: opensesame")
    monkeypatch.setenv("CAVE_PASSWORD", "opensesame")
    assert f"wrong: {REDACTED}" == redact("wrong: opensesame")


def test_the_longer_of_two_secrets_is_redacted_in_full() -> None:
    environ = {"A_KEY": "abcdefgh", "B_KEY": "abcdefgh-ijklmnop"}
    assert REDACTED == redact("abcdefgh-ijklmnop", environ)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("OPENAI_API_KEY", True),
        ("ANTHROPIC_AUTH_TOKEN", True),
        ("PGPASSWORD", True),
        ("DB_PASS", True),
        ("CLIENT_SECRET", True),
        ("apikey", True),
        ("PATH", False),
        ("PWD", False),
        ("OLDPWD", False),
        ("SSH_AUTH_SOCK", False),
        ("SSL_KEY_FILE", False),
        ("KEYBOARD", False),
        ("AUTHOR", False),
    ],
)
def test_a_name_says_what_is_secret(name: str, secret: bool) -> None:  # noqa: FBT001 - a row
    assert secret == is_secret_name(name)


@pytest.mark.parametrize(
    "piece",
    ["eyJ-", "://a:", "bearer ", "sk-", "token=", "-----BEGIN PRIVATE KEY-----", '"token":"'],
)
def test_no_text_takes_long(piece: str) -> None:
    """Ten times the text takes about ten times as long, whatever an attacker writes."""

    def taken(size: int) -> float:
        text = piece * (size // len(piece))
        best = float("inf")
        for _ in range(3):
            began = time.process_time()  # what others do does not count
            redact(text, {})
            best = min(best, time.process_time() - began)
        return best

    taken(1_000)
    assert taken(200_000) < 60 * taken(20_000)
