from __future__ import annotations

import time

import pytest

from palaver.messages import new_id
from palaver.messages.ids import NIL_ID, derive_id, is_uuid, now_ms, require_uuid, uuid_for


def test_new_ids_are_uuids_of_version_7_that_sort_by_time() -> None:
    made = [new_id() for _ in range(1_000)]
    assert made == sorted(made)
    assert len(made) == len(set(made))
    assert {"7"} == {name[14] for name in made}
    assert abs(int(made[0][:8] + made[0][9:13], 16) - now_ms()) < 60_000


@pytest.mark.parametrize(
    "text", [NIL_ID, NIL_ID.replace("0", "f"), "0190163D-8694-739B-AEA5-966C26F8AD91"]
)
def test_a_uuid_of_any_version_and_case_is_one(text: str) -> None:
    assert is_uuid(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ses_1",
        NIL_ID + "\n",
        NIL_ID[:-1],
        f"{{{NIL_ID}}}",
        NIL_ID.replace("-", ""),
        "\u0660" * 36,
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert not is_uuid(text)
    with pytest.raises(ValueError):  # noqa: PT011 - it has no message: it is always caught
        require_uuid(text)


def test_long_texts_that_are_no_uuids_are_not_cached() -> None:
    before = require_uuid.cache_info().currsize
    assert not is_uuid("x" * 10_000_000)
    assert before == require_uuid.cache_info().currsize


def test_a_foreign_id_always_becomes_the_same_uuid() -> None:
    assert is_uuid(uuid_for("ses_1"))
    assert uuid_for("ses_1") == uuid_for("ses_1")
    assert uuid_for("ses_1") != uuid_for("ses_2")
    assert "d5acd1e1-44ca-5b0f-8a6e-a4dd9f8ba3a2"[14] == uuid_for("ses_1")[14]


def test_a_uuid_stands_for_itself() -> None:
    assert NIL_ID == uuid_for(NIL_ID)


def test_a_derived_id_follows_from_its_base_and_purpose() -> None:
    assert derive_id("a", "call") == derive_id("a", "call")
    assert 3 == len({derive_id("a", "call"), derive_id("a", "text"), derive_id("b", "call")})


def test_now_is_in_milliseconds() -> None:
    assert abs(now_ms() - time.time() * 1000) < 60_000
