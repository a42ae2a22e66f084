"""The context node: two forms of settings, one operation, and errors that name the field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.conversation import Conversation
from palaver.errors import PalaverError, UnsupportedOperation, ValidationError
from palaver.history import Append, BaseHistory, Clear, History, Insert, Replace, Rollback, Truncate
from palaver.messages import Message, user
from palaver.nodes import edit_context, parse_context
from tests.profiles import at_least

if TYPE_CHECKING:
    from palaver import Store
    from palaver.events import Event
    from palaver.history import Operation

pytestmark = pytest.mark.anyio
HI: dict[str, Any] = {"role": "user", "content": "hi", "id": "m1", "timestamp": 5}
SAID = Message("user", "hi", id="m1", timestamp=5)


@pytest.mark.parametrize(
    ("nested", "flat", "expected"),
    [
        ({"truncate": {"role": "user", "keepLast": 5}}, {"role": "user", "keepLast": 5},
         Truncate(role="user", keep_last=5)),
        ({"truncate": {"range": {"start": 1, "end": 3}}}, {"range": {"start": 1, "end": 3}},
         Truncate(range={"start": 1, "end": 3})),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        ({"insert": {"position": 2, "messages": [HI]}}, {"position": 2, "messages": [HI]},
         Insert(2, (SAID,))),
        ({"replace": {"index": 0, "message": HI}}, {"index": 0, "message": HI}, Replace(0, SAID)),
        ({"clear": {"keepSystemMessage": False}}, {"keepSystemMessage": False}, Clear(False)),  # noqa: FBT003
        ({"append": {"messages": [HI]}}, {"messages": [HI]}, Append((SAID,))),
        ({"rollback": {"targetBatchIndex": 1}}, {"targetBatchIndex": 1}, Rollback(1)),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)  # fmt: skip
def test_both_forms_come_to_the_same_operation(
    nested: dict[str, Any], flat: dict[str, Any], expected: Operation
) -> None:
    (name,) = nested
    assert (expected,) == parse_context({"operation": name, **nested})
    assert (expected,) == parse_context({"operation": name.upper(), **flat})
    assert (expected,) == parse_context({"operation": name, **flat}), "S1's spelling, S0's fields"
    assert (expected,) == parse_context(expected)
    assert (expected, expected) == parse_context([expected, {"operation": name, **nested}])


def test_clear_says_enough_by_its_name() -> None:
    assert (Clear(),) == parse_context({"operation": "clear"})
    assert (Clear(),) == parse_context({"operation": "CLEAR", "truncate": None})


@pytest.mark.parametrize(
    ("config", "path", "words"),
    [
        ({"operation": "truncate"}, "$.truncate", "Truncate configuration is required"),
        ({"operation": "insert"}, "$.insert", "Insert configuration is required"),
        ({"operation": "filter"}, "$.filter", "Filter configuration is required"),
        ({"operation": "truncate", "truncate": {"keepLast": -1}}, "$.truncate.keepLast",
         "must not be negative"),
        ({"operation": "truncate", "truncate": {"keepLast": 1.5}}, "$.truncate.keepLast", "int"),
        ({"operation": "truncate", "truncate": {"keepLats": 1}}, "$.truncate.keepLats",
         "is not a field of it"),
        ({"operation": "truncate", "truncate": {}}, "$.truncate", "needs one of keepFirst"),
        ({"operation": "truncate", "truncate": 5}, "$.truncate", "must be an object"),
        ({"operation": "truncate", "truncate": {"keepLast": 1}, "keepFirst": 1}, "$.keepFirst",
         "the fields of truncate stand in $.truncate"),
        ({"operation": "truncate", "filter": {"roles": ["user"]}}, "$.filter",
         "goes with the operation filter, not with truncate"),
        ({"operation": "truncate", "truncate": {"operation": "CLEAR"}}, "$.truncate.operation",
         "is not a field"),
        ({"operation": "truncate", "truncate": {"role": "robot", "keepLast": 1}},
         "$.truncate.role", "Invalid enum value 'robot'"),
        ({"operation": "filter", "filter": {"contentContains": [""]}},
         "$.filter.contentContains[0]", "must not be empty"),
        ({"operation": "insert", "insert": {"position": 0, "messages": [{"role": "user"}]}},
         "$.insert.messages[0].content", "role and content are required"),
        ({"operation": "replace", "replace": {"index": True, "message": HI}}, "$.replace.index",
         "int"),
        ({"operation": "TRUNCATE"}, "$", "needs one of keepFirst"),
        ({"operation": "TRUNCATE", "keepLast": -1}, "$.keepLast", "must not be negative"),
        ({"operation": "TRUNCATE", "keepLats": 1}, "$.keepLats", "is not a field of it"),
        ({"operation": "truncate", "truncate": {"keepLast": 1}, "createNewBatch": True},
         "$.createNewBatch", "is no longer a field"),
        ({"truncate": {"keepLast": 1}}, "$.operation", "is missing"),
        ([{"operation": "clear"}, {"operation": "filter", "filter": {"roles": []}}],
         "$[1].filter.roles", "must not be an empty list"),
        ([], "$", "must have an operation"),
        (5, "$", "must be an operation"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_its_path(config: object, path: str, words: str) -> None:
    """ND-02."""
    with pytest.raises(ValidationError) as caught:
        parse_context(config)
    assert path == caught.value.path
    assert words in caught.value.detail


def test_an_operation_that_nobody_knows_is_named() -> None:
    with pytest.raises(UnsupportedOperation, match="Unsupported operation type: explode") as caught:
        parse_context({"operation": "explode"})
    assert "$.operation" == caught.value.path
    with pytest.raises(UnsupportedOperation) as caught:
        parse_context([{"operation": "clear"}, {"operation": "explode"}])
    assert "$[1].operation" == caught.value.path


def talk(store: Store, *roles: str) -> Conversation:
    messages = [{"role": role, "content": f"{role} {place}"} for place, role in enumerate(roles)]
    return Conversation(store, store.create(messages))


async def test_the_node_edits_and_says_what_comes_next(store: Store) -> None:
    conversation = talk(store, "system", "user", "assistant", "user", "assistant")
    seen: list[Event] = []
    conversation.events.on("*", seen.append)
    done = await edit_context(conversation, {"operation": "truncate", "truncate": {"keepLast": 2}})
    assert ["user 3", "assistant 4"] == [message.text for message in conversation.messages]
    assert ("context", "edited", "end", 1) == (done.node, done.outcome, done.next, done.version)
    assert [("history.edited", {"operation": "TRUNCATE"})] == [(e.name, e.data) for e in seen]


async def test_a_list_is_carried_out_in_order_and_a_text_is_read(store: Store) -> None:
    conversation = talk(store, "user", "assistant", "user")
    config = '[{"operation":"REPLACE","index":0,"message":{"role":"user","content":"new"}},'
    done = await edit_context(conversation, config + '{"operation":"truncate","keepFirst":1}]')
    assert ["new"] == [message.text for message in conversation.messages]
    assert "llm" == done.next
    rolled = await edit_context(conversation, "operation: ROLLBACK\ntargetBatchIndex: 0\n")
    assert ("edited", 3) == (rolled.outcome, len(conversation))


async def test_under_a_key_it_is_done_once_whatever_came_since(store: Store) -> None:
    conversation = talk(store, "user", "assistant", "user", "assistant")
    config = [
        {"operation": "TRUNCATE", "removeLast": 1},
        {"operation": "append", "append": {"messages": [{"role": "user", "content": "more"}]}},
    ]
    first = await edit_context(conversation, config, key="k")
    assert (4, "edited", False) == (len(conversation), first.outcome, first.again)
    assert first.added == (conversation.messages[-1].id,)
    other = Conversation(store, conversation.id)
    other.add(user("and more"))
    again = await edit_context(other, config, key="k")
    assert (5, "nothing", True) == (len(other), again.outcome, again.again)
    await edit_context(other, config, key="another")
    assert ["user 0", "assistant 1", "user 2", "more", "more"] == [m.text for m in other.messages]


async def test_what_does_not_fit_changes_nothing(store: Store) -> None:
    conversation = talk(store, "user")
    with pytest.raises(ValidationError, match="position"):
        await edit_context(conversation, {"operation": "INSERT", "position": 9, "messages": []})
    assert 0 == conversation.history.version


# ── for all settings ────────────────────────────────────────────────────────────────────────────

ROLES = st.sampled_from(["system", "user", "assistant", "tool"])
TEXTS = st.sampled_from(["tea", "coffee", "more tea"])
COUNTS = st.integers(0, 6)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    role = draw(st.sampled_from(["system", "user", "assistant"]))
    name = draw(st.integers(0, 10**6))
    return {"role": role, "content": draw(TEXTS), "id": f"m{name}", "timestamp": 1}


RANGES = st.tuples(COUNTS, COUNTS).map(lambda ends: {"start": min(ends), "end": max(ends)})
SECTIONS = st.one_of(
    st.tuples(
        st.just("truncate"),
        st.fixed_dictionaries(
            {},
            optional={
                "keepFirst": COUNTS, "keepLast": COUNTS, "removeFirst": COUNTS,
                "removeLast": COUNTS, "range": RANGES, "role": ROLES,
            },
        ),
    ),
    st.tuples(
        st.just("insert"),
        st.fixed_dictionaries({"position": COUNTS, "messages": st.lists(messages(), max_size=2)}),
    ),
    st.tuples(st.just("replace"), st.fixed_dictionaries({"index": COUNTS, "message": messages()})),
    st.tuples(
        st.just("filter"),
        st.fixed_dictionaries(
            {},
            optional={
                "roles": st.lists(ROLES, max_size=2),
                "contentContains": st.lists(TEXTS, max_size=2),
                "contentExcludes": st.lists(TEXTS, max_size=2),
            },
        ),
    ),
    st.tuples(
        st.just("clear"), st.fixed_dictionaries({}, optional={"keepSystemMessage": st.booleans()})
    ),
    st.tuples(
        st.just("append"), st.fixed_dictionaries({"messages": st.lists(messages(), max_size=2)})
    ),
    st.tuples(st.just("rollback"), st.fixed_dictionaries({"targetBatchIndex": st.integers(0, 2)})),
)  # fmt: skip


def outcome(history: BaseHistory, config: dict[str, Any]) -> object:
    """What settings do to a history: its messages and its batch, or the kind of error."""
    try:
        (operation,) = parse_context(config)
        history.execute(operation)
    except PalaverError as error:
        return type(error), getattr(error, "detail", "")
    return [(m.id, m.role, m.text) for m in history], history.view.batch_index


@at_least(100)
@given(st.lists(messages(), max_size=6), st.lists(SECTIONS, min_size=1, max_size=4))
def test_both_forms_do_what_the_operation_does(
    said: list[dict[str, Any]], sections: list[tuple[str, dict[str, Any]]]
) -> None:
    """ND-02: for any history and any settings, good or bad."""
    nested, flat, plain = History(said), History(said), History(said)
    for name, fields in sections:
        expected: object
        try:
            plain.execute({"operation": name.upper(), **fields})
            expected = [(m.id, m.role, m.text) for m in plain], plain.view.batch_index
        except PalaverError as error:
            expected = type(error), getattr(error, "detail", "")
        assert expected == outcome(nested, {"operation": name, name: fields})
        assert expected == outcome(flat, {"operation": name.upper(), **fields})


def test_the_property_can_fail() -> None:
    """What it compares does differ where settings differ."""
    said = [{"role": "user", "content": "tea", "id": "m1", "timestamp": 1}]
    kept = outcome(History(said), {"operation": "truncate", "truncate": {"keepLast": 1}})
    assert kept != outcome(History(said), {"operation": "TRUNCATE", "keepLast": 0})
