"""Names and ids in a provider's alphabet: as they are where they fit, else spelled for good."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver import wire
from palaver.messages import user
from palaver.testing import check_request
from palaver.wire import FORMATS
from palaver.wire.format import Alphabet
from tests.profiles import at_least
from tests.wire.pieces import call, calling, result

NARROW = Alphabet("[a-z_]", 20, "[a-z]")
printable = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Zl", "Zp"]), min_size=1
)


@pytest.mark.parametrize("form", FORMATS)
@at_least(100)
@given(name=printable, other=printable)
def test_what_is_spelled_fits_and_two_names_never_become_one(
    form: str, name: str, other: str
) -> None:
    for alphabet in (FORMATS[form].tool_names, FORMATS[form].call_ids):
        spelled = alphabet.spell(name)

        pattern = f"{alphabet.first or alphabet.letters}{alphabet.letters}*"
        assert re.fullmatch(pattern, spelled)
        assert len(spelled) <= alphabet.longest
        assert spelled == alphabet.spell(spelled)
        assert (name == other) == (spelled == alphabet.spell(other))


def test_a_name_that_fits_goes_out_as_it_is() -> None:
    assert ["abc", "a" * 20] == [NARROW.spell(name) for name in ("abc", "a" * 20)]


def test_what_does_not_fit_is_readable_still() -> None:
    assert "a_b_" == NARROW.spell("a.b")[:4]
    assert "_b" != NARROW.spell("_b")
    assert 20 == len(NARROW.spell("a" * 21))


@pytest.mark.parametrize("form", FORMATS)
def test_ids_that_would_look_the_same_stay_apart(form: str) -> None:
    """A second call of an id, beside a call whose own id looks like what that would become."""
    alphabet = FORMATS[form].call_ids
    again, first_try = alphabet.spell("c1#2"), alphabet.spell("c1#2.1")
    for ids in (
        ("c1", "c1", "c1#2"),
        ("c1#2", "c1", "c1"),
        (again, "c1", "c1"),
        (first_try, again, "c1", "c1"),
        ("a b", alphabet.spell("a b")),
        (alphabet.spell("a b"), "a b", "a b"),
    ):
        talk = [calling(*(call(name) for name in ids)), *(result(name, name) for name in ids)]
        body = wire.to(form, talk).body

        assert () == check_request(form, body)


def test_an_id_keeps_its_spelling_when_its_turn_is_written_again() -> None:
    """A late result makes a turn be written again: the registry of ids must not be in its way."""
    talk = [calling(call("c1"), call("c1"), call("c1#2")), result("c1", "one")]
    growing = wire.converter("openai-responses")
    growing.extend(talk)
    before = [item.get("call_id") for item in growing.request().items]
    growing.extend([result("c1", "two")])

    assert before == [item.get("call_id") for item in growing.request().items]
    assert ["c1", "c1#2", "c1#2.1"] == before[:3]


def test_ids_of_gemini_stay_apart_too() -> None:
    """Its own ids are kept; one that comes twice gets another, which may be taken as well."""
    for own in (("g", "g"), ("c3", "g", "g"), ("c3", "c3'", "g", "g"), ("g", "g", "c2")):
        ids = [f"c{number + 1}" for number in range(len(own))]
        pairs = list(zip(ids, own, strict=True))
        asked = calling(*(call(name, metadata={"google": {"id": its}}) for name, its in pairs))
        request = wire.to("gemini", [user("x"), asked, *(result(name, name) for name in ids)])

        answered = [part["functionResponse"] for part in request.items[2]["parts"]]
        assert () == check_request("gemini", request.body)
        assert ids == [response["response"]["output"] for response in answered]
        assert len(own) == len({response["id"] for response in answered})
        assert "duplicate-call-id" in {note.rule for note in request.notes}
