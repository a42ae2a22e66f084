"""The context processor: an edit of the conversation, by settings in either of two forms.

    {"operation": "truncate", "truncate": {"role": "user", "keepLast": 5}}      nested
    {"operation": "TRUNCATE", "role": "user", "keepLast": 5}                    flat

Both come to the same operation of `palaver.history`, which is what is carried out: one batch, one
version, and undo leads back. A list of them is carried out in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from anyio import to_thread

from palaver.errors import UnsupportedOperation, ValidationError
from palaver.history import Append, Operation, Rollback, parse_operation
from palaver.messages.gate import path_step
from palaver.nodes.results import Done, look, tell

if TYPE_CHECKING:
    from palaver.conversation import Conversation
    from palaver.nodes.results import Standing

__all__ = ["ContextConfig", "edit_context", "parse_context"]

ContextConfig: TypeAlias = tuple[Operation, ...]
"""The context node: operations, in order."""

_NEEDED: Final = ("append", "filter", "insert", "replace", "rollback", "truncate")
_SECTIONS: Final = (*_NEEDED, "clear")
_GONE: Final = "is no longer a field: every edit but append and rollback opens a batch"


def parse_context(data: object) -> ContextConfig:
    """Read the settings of a context node: one operation in either form, or a list of them.

    >>> nested = {"operation": "truncate", "truncate": {"role": "user", "keepLast": 5}}
    >>> flat = {"operation": "TRUNCATE", "role": "user", "keepLast": 5}
    >>> parse_context(nested) == parse_context(flat)
    True
    >>> parse_context({"operation": "truncate", "truncate": {"keepLast": -1}})
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.truncate.keepLast: must not be negative: -1 [HI-01]
    """
    if isinstance(data, Iterable) and not isinstance(data, Mapping | str | bytes):
        found: list[Operation] = []
        for place, item in enumerate(data):
            try:
                found.append(_read(item))
            except ValidationError as error:
                raise error.under(f"$[{place}]") from None
            except UnsupportedOperation as error:
                path = f"$[{place}].operation"
                raise UnsupportedOperation(error.operation, path=path) from None
        if not found:
            raise ValidationError("must have an operation", path="$", rule="ND-02")
        return tuple(found)
    return (_read(data),)


def _read(data: object) -> Operation:
    if not isinstance(data, Mapping):
        if isinstance(data, Operation):
            return data
        raise ValidationError("must be an operation, an object", path="$", rule="ND-02")
    given = {str(name): value for name, value in data.items() if value is not None}
    if "createNewBatch" in given:
        raise ValidationError(_GONE, path="$.createNewBatch", rule="ND-02")
    name = given.get("operation")
    if not isinstance(name, str) or name.lower() not in _SECTIONS:
        return parse_operation(data)  # it says what is wrong
    own = name.lower()
    is_nested = own in given or name == own
    return _nested(given, own) if is_nested else _flat(given, own)


def _nested(given: dict[str, Any], own: str) -> Operation:
    if own not in given and len(given) > 1 and not any(word in _SECTIONS for word in given):
        return _flat(given, own)  # S0's fields under S1's spelling
    for name in given:
        if name in _SECTIONS and name != own:
            detail = f"goes with the operation {name}, not with {own}"
            raise ValidationError(detail, path=f"$.{name}", rule="ND-02")
        if name not in ("operation", own):
            detail = f"is not a field of it; the fields of {own} stand in $.{own}"
            raise ValidationError(detail, path=f"${path_step(name)}", rule="ND-02")
    if own not in given and own in _NEEDED:
        detail = f"{own.capitalize()} configuration is required"
        raise ValidationError(detail, path=f"$.{own}", rule="ND-02")
    section = given.get(own, {})
    if not isinstance(section, Mapping):
        raise ValidationError("must be an object", path=f"$.{own}", rule="ND-02")
    if "operation" in section:
        raise ValidationError("is not a field of it", path=f"$.{own}.operation", rule="ND-02")
    try:
        return parse_operation({"operation": own.upper(), **section})
    except ValidationError as error:
        raise error.under(f"$.{own}") from None


def _flat(given: dict[str, Any], own: str) -> Operation:
    return parse_operation({**given, "operation": own.upper()})


async def edit_context(
    conversation: Conversation,
    config: Any,  # noqa: ANN401 - see below
    *,
    key: str | None = None,
) -> Done:
    """Edit a conversation by settings: a dict, JSON, YAML, or operations as values.

    `key` makes doing it again harmless: what was done under it before is not done again.
    """
    from palaver.nodes.reading import read_config  # noqa: PLC0415 - it reads these settings too

    operations = read_config("context", config)
    before, standing, done = await to_thread.run_sync(
        partial(_carry_out, conversation, operations, key)
    )
    for operation in done:
        await _tell(conversation, operation)
    names = ", ".join(operation.operation for operation in operations)
    return Done(
        node="context",
        outcome="edited" if done else "nothing",
        next=standing.next,
        conversation=conversation.id,
        version=standing.version,
        added=tuple(m.id for o in done if isinstance(o, Append) for m in o.messages),
        calls=tuple(call.id for call in standing.waiting),
        again=not done and standing.version >= before,
        detail=names,
    )


def _carry_out(
    conversation: Conversation, operations: ContextConfig, key: str | None
) -> tuple[int, Standing, list[Operation]]:
    history = conversation.history.refresh()
    first, done = history.version, list[Operation]()
    for place, operation in enumerate(operations):
        before = history.version
        history.execute(operation, key=None if key is None else f"{key}-{place}")
        if history.version != before:
            done.append(operation)
    return first, look(conversation), done


async def _tell(conversation: Conversation, operation: Operation) -> None:
    if isinstance(operation, Append):
        for message in operation.messages:
            await tell(conversation, "message.added", {"id": message.id, "role": message.role})
    elif isinstance(operation, Rollback):
        data = {"operation": "ROLLBACK", "targetBatchIndex": operation.target_batch_index}
        await tell(conversation, "history.rolled_back", data)
    else:
        await tell(conversation, "history.edited", {"operation": operation.operation})
