"""`ContextManager`: the prompt that an agent of a team gets, over any history.

It chooses the messages that the agent may see, adds the agent's window and budget, and hands the
sections to an assembler. The prompt that an agent had before it last spoke is worked out again from
the history: nothing is stored for it, and every process gets the same.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from palaver.context.assemblers import (
    ASSEMBLERS,
    PLAIN,
    PLAIN_TYPE,
    AssemblerInput,
    Layout,
    PromptLimits,
    fit,
    fit_stream,
    measure,
    normalize_agent_type,
)
from palaver.context.explain import (
    PromptComparison,
    PromptExplanation,
    PromptFingerprint,
    explain_messages,
    explain_parts,
)
from palaver.context.markers import find_team_task
from palaver.context.visibility import (
    CONTEXT_ROLES,
    Selection,
    Visibility,
    VisibilityIndex,
    context_messages,
    is_context,
    iter_context,
    select,
    show,
)
from palaver.errors import DoesNotFit, PalaverError, ValidationError
from palaver.events import Event, EventBus
from palaver.history import BaseHistory, History, View
from palaver.history.frame import IMPORT, SESSION
from palaver.messages import Message, ToolCallPart, new_id
from palaver.messages.codec import load_json
from palaver.messages.ids import now_ms
from palaver.messages.limits import (
    EMPTY,
    check_argument,
    check_callable,
    check_name,
    check_text,
    describe_argument,
    not_pickled,
    shorten,
)
from palaver.messages.message import (
    MOST_ALONE,
    fold_name,
    show_html,
    show_rich,
)
from palaver.stores.transfer import read_message, read_snapshot, write_snapshot
from palaver.tokens import counter, with_fallback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from palaver.context.assemblers import Assembler, AssemblerOutput
    from palaver.tokens import TokenCounter

__all__ = [
    "MAX_BYTES",
    "MAX_TEAM_TASK_BYTES",
    "WINDOW",
    "ContextManager",
    "KnownAgent",
    "Prompt",
    "PromptScope",
    "as_message",
    "previous_prompt",
    "prompt_at_turn",
]


class KnownAgent:
    """An agent as a conversation knows it: its id, name and type when it last spoke.

    `last_index` is the index of the last message it spoke, or None if it has not spoken. An agent
    that has not spoken has what was asked for as its id and its name.

    >>> from palaver.messages import Speaker, assistant
    >>> known = KnownAgent([assistant("Hi", speaker=Speaker("a1", "Max", "ai"))], "max")
    >>> known.id, known.name, known.last_index
    ('a1', 'Max', 0)
    """

    def __init__(self, messages: Sequence[Message], agent: str) -> None:
        """Look for an agent by its id or name, from the newest message back."""
        self.id, self.name, self.agent_type = agent, agent, PLAIN_TYPE
        self.last_index: int | None = None
        wanted = fold_name(agent)
        for index in reversed(range(len(messages))):
            speaker = messages[index].speaker
            if speaker is None:
                continue
            if wanted in speaker.names:
                self.id, self.name, self.last_index = speaker.role_id, speaker.role_name, index
                kind = speaker.extra.get("agentType")
                self.agent_type = kind if isinstance(kind, str) and kind else PLAIN_TYPE
                return


def previous_prompt(
    agent: KnownAgent, history: BaseHistory, limits: Mapping[str, Any], options: Mapping[str, Any]
) -> Prompt | None:
    """Return the prompt that an agent had before it last spoke, or None if there was none.

    `limits` are keyword arguments of `ContextManager`, `options` those of its `prompt_for`.
    """
    if not agent.last_index:
        return None
    earlier = History(history[: agent.last_index])
    earlier.set_team_task(history.team_task)
    try:
        return ContextManager(earlier, **limits).prompt_for(agent.id, **options)
    except DoesNotFit:
        return None


def prompt_at_turn(
    agent: KnownAgent,
    history: BaseHistory,
    turn: int,
    limits: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Prompt:
    """Return the prompt that an agent had at one of its turns: 1 is its first.

    A turn ends with a message without tool calls. A team stores with it which version the agent was
    shown; without that, it is everything before the turn's first message. `limits` are keyword
    arguments of `ContextManager`, `options` those of its `prompt_for`. Raises `ValidationError` if
    there is no such turn.
    """
    wanted, began, turns = fold_name(agent.id), None, list[tuple[int, int]]()
    for index, message in enumerate(history.view):
        if message.speaker is None or wanted not in message.speaker.names:
            continue
        began = index if began is None else began
        if not any(isinstance(part, ToolCallPart) for part in message.parts):
            turns.append((began, index))
            began = None
    if type(turn) is not int or not 0 < turn <= len(turns):
        detail = f"must be from 1 to {len(turns)}, the turns that {agent.name} has had, not {turn}"
        raise ValidationError(detail, path="$.turn", rule="turn")
    first, last = turns[turn - 1]
    team: object = history.view[last].metadata.get("team")
    seen = team.get("sees") if isinstance(team, Mapping) else None
    try:
        shown = None if type(seen) is not int else history.at(seen)
    except PalaverError:  # a version of another conversation, from which this one was imported
        shown = None
    if shown is None or any(message.id == history.view[last].id for message in shown[-_RECENT:]):
        earlier = History(history[:first])
        earlier.set_team_task(history.team_task)
        return ContextManager(earlier, **limits).prompt_for(agent.id, **options)
    return ContextManager(history, **limits).prompt_for(agent.id, **options, at=seen)


_RECENT: Final = 100
"""How many messages of an earlier version are compared with the message that followed it."""
WINDOW: Final = 5
"""The default number of messages before the current one that an agent is shown."""
MAX_BYTES: Final = 768 * 1024
"""The default limit of a prompt and its system flag together, in bytes."""
MAX_TEAM_TASK_BYTES: Final = 5 * 1024
"""The limit of a team task, in bytes; a longer one is truncated."""
_TRUNCATE: Final = "TRUNCATE"
_log: Final = logging.getLogger("palaver.context")


class ContextManager:
    """What each agent of a team sees.

    >>> context = ContextManager()
    >>> user = {"roleId": "u1", "roleName": "User", "type": "human"}
    >>> max_ = {"roleId": "max", "roleName": "Max", "type": "ai"}
    >>> _ = context.add_message({"content": "Hi", "speaker": user})
    >>> _ = context.add_message({"content": "Hello! [NEXT: sarah]", "speaker": max_})
    >>> print(context.prompt_for("sarah", "claude").prompt)
    [CONTEXT]
    - User -> all: Hi
    <BLANKLINE>
    [MESSAGE]
    Hello!
    """

    __reduce_ex__ = not_pickled("make it again, over the history of a store")

    def __init__(
        self,
        history: BaseHistory | None = None,
        *,
        window: int = WINDOW,
        windows: Mapping[str, int] = EMPTY,
        max_bytes: int = MAX_BYTES,
        max_tokens: int | None = None,
        max_messages: int | None = None,
        count: TokenCounter | None = None,
        visibility: Visibility = "all",
        assemblers: Mapping[str, Assembler] = EMPTY,
        on_message_added: Callable[[Message], object] | None = None,
        on_team_task_changed: Callable[[str | None], object] | None = None,
        events: EventBus | None = None,
    ) -> None:
        """Manage the context of a history, stored or in memory; without one, of a new history.

        `windows` gives agents a window of their own, by id or by type. With `max_messages`, adding
        a message or importing a snapshot removes the oldest messages from the view, so that no more
        are left; system messages stay, the log has everything, and `history.undo()` brings it back.
        `count` counts tokens in place of the default counter; where it fails, the estimate counts.
        The two callbacks are called after the change.
        """
        wanted = "a history, such as History() or store.create()"
        check_argument(history, (BaseHistory, NoneType), "$.history", wanted)
        check_argument(windows, Mapping, "$.windows", "windows by the ids or types of agents")
        check_argument(assemblers, Mapping, "$.assemblers", "assemblers by types of agents")
        check_argument(events, (EventBus, NoneType), "$.events", "an EventBus")
        check_callable(count, "$.count", "a function that returns the number of tokens in a text")
        check_callable(on_message_added, "$.on_message_added", "a function that takes a message")
        check_callable(on_team_task_changed, "$.on_team_task_changed", "a function of a task")
        self.history = History() if history is None else history
        self.window = _check_count(window, "$.window")
        self.windows = {
            name: _check_count(size, f"$.windows.{name}") for name, size in windows.items()
        }
        self.max_bytes = _check_count(max_bytes, "$.maxBytes")
        self.max_tokens = None if max_tokens is None else _check_count(max_tokens, "$.maxTokens")
        self.max_messages = (
            None if max_messages is None else _check_count(max_messages, "$.maxMessages", least=1)
        )
        self.visibility: Visibility = _check_visibility(visibility)
        self.events = EventBus() if events is None else events
        self._count = with_fallback(counter() if count is None else count)
        self._assemblers: dict[str, Assembler] = {**ASSEMBLERS}
        for name, assembler in assemblers.items():
            self.register(name, assembler)
        self._on_message_added = on_message_added
        self._on_team_task_changed = on_team_task_changed
        self._index = VisibilityIndex()
        self._fingerprints: dict[str, PromptFingerprint] = {}

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    def add_message(self, message: Message | Mapping[str, Any] | None) -> Message:
        """Add a message and return it; a team task marker in its text sets the team task."""
        added = as_message(message, at=now_ms())
        task = find_team_task(added.sendable_text) if added.role in CONTEXT_ROLES else None
        if task is None:
            self.history.append(added)
        else:
            self.history.set_team_task(_truncate_task(task), messages=(added,))
        _log.debug("[ContextManager] Message added: %s", added.id)
        _call(self._on_message_added, added)
        self._emit("message.added", {"id": added.id, "role": added.role})
        if task is not None:
            self._team_task_changed()
        self._remove_oldest()
        return added

    def _remove_oldest(self) -> None:
        """Remove the oldest messages beyond `max_messages` from the view, in one change."""
        view = self.history.view
        kept = self._newest(view)
        if sum(map(len, kept)) < len(view):
            self.history.rewrite(kept, reason=_TRUNCATE)
            self._emit("history.edited", {"operation": _TRUNCATE})

    def _newest(self, messages: Sequence[Message]) -> list[range]:
        """Return the ranges that `max_messages` leaves: the newest, and all system messages."""
        excess = 0 if self.max_messages is None else len(messages) - self.max_messages
        kept: list[range] = []
        index = 0
        while excess > 0 and index < len(messages):
            if messages[index].role == "system":
                kept.append(range(index, index + 1))
            else:
                excess -= 1
            index += 1
        return [*kept, range(index, len(messages))]

    @property
    def messages(self) -> list[Message]:
        """All messages, as a new list."""
        return self.history.messages

    @property
    def latest(self) -> Message | None:
        """The last message, or None if there is none."""
        view = self.history.view
        return view[-1] if len(view) else None

    def message(self, which: int | str | Message) -> Message:
        """Return a message by its index, its id or its handle, such as `msg-1`."""
        view = self.history.view
        return view.log[view.find(which)]

    def handle(self, which: int | str | Message) -> str | None:
        """Return the handle of a message: `msg-N` for the N-th since the session began."""
        return self.history.view.handle(which)

    # ── the team task ───────────────────────────────────────────────────────────────────────────

    @property
    def team_task(self) -> str | None:
        """The task that the team works on."""
        return self.history.team_task

    def set_team_task(self, task: str | None) -> None:
        """Set the task that the team works on; more than 5 KB are cut off, between characters."""
        if task is not None:
            check_text(task, "$.teamTask")
            task = _truncate_task(task)
        self.history.set_team_task(task)
        self._team_task_changed()

    def _team_task_changed(self) -> None:
        task = self.team_task
        _call(self._on_team_task_changed, task)
        self._emit("team_task.changed", {"teamTask": task})

    # ── prompts ─────────────────────────────────────────────────────────────────────────────────

    def prompt_for(
        self,
        agent: str,
        agent_type: str = PLAIN_TYPE,
        *,
        window: int | None = None,
        system_instruction: str | None = None,
        instruction_file_text: str | None = None,
        visibility: Visibility | None = None,
        name: str | None = None,
        at: int | None = None,
    ) -> Prompt:
        r"""Work out the prompt of an agent, which can be explained.

        An agent is known by its id and, if `name` is given, by its name. `window` and `visibility`
        override the manager's own. With `at`, the prompt is that of an earlier version.

        >>> from palaver.history import History
        >>> from palaver.messages import user
        >>> context = ContextManager(History([user("one"), user("two"), user("three")]))
        >>> prompt = context.prompt_for("max", window=1)
        >>> prompt.prompt
        'user: two\n\nthree'
        >>> [(entry.handle, entry.reason) for entry in prompt.explain().entries]
        [('msg-2', 'fits'), ('msg-3', 'current')]
        """
        scope = self._scope(agent, agent_type, window, visibility, name, at=at)
        given = self._input(scope, system_instruction, instruction_file_text)
        assembler = self._assembler(agent_type)
        limits = PromptLimits(given.max_bytes, given.max_tokens)
        output, lines = fit(assembler, given.sections, limits, self._count)
        prompt = Prompt(
            scope=scope,
            given=given,
            assembler=assembler,
            output=output,
            lines=lines,
            previous=self._fingerprints.get(agent) if at is None else None,
            count=self._count,
        )
        if at is None:
            self._fingerprints[agent] = prompt.fingerprint
        return prompt

    def context_for(
        self,
        agent: str,
        agent_type: str = PLAIN_TYPE,
        *,
        window: int | None = None,
        system_instruction: str | None = None,
        instruction_file_text: str | None = None,
        visibility: Visibility | None = None,
        name: str | None = None,
    ) -> AssemblerInput:
        """Work out what an agent may be shown, as the input of `assemble`; see `prompt_for`."""
        scope = self._scope(agent, agent_type, window, visibility, name)
        return self._input(scope, system_instruction, instruction_file_text)

    def stream_for(
        self,
        agent: str,
        agent_type: str = PLAIN_TYPE,
        *,
        window: int | None = None,
        system_instruction: str | None = None,
        instruction_file_text: str | None = None,
        visibility: Visibility | None = None,
        name: str | None = None,
    ) -> Iterator[str]:
        r"""Work out the prompt of an agent piece by piece, for windows of very many messages.

        The pieces together are the text of `prompt_for`: the sections, and between them a piece for
        each line of context. Messages are read when their line is due, so that neither they nor the
        prompt are in memory at once. What does not fit is refused before the first piece. An
        assembler that is a function gives its prompt as one piece.

        >>> from palaver.history import History
        >>> from palaver.messages import user
        >>> context = ContextManager(History([user("one"), user("two"), user("three")]))
        >>> list(context.stream_for("max"))
        ['user: one', '\nuser: two', '\n\nthree']
        """
        layout = self._assembler(agent_type)
        if not isinstance(layout, Layout):
            prompt = self.prompt_for(
                agent, agent_type, window=window, system_instruction=system_instruction,
                instruction_file_text=instruction_file_text, visibility=visibility, name=name,
            )  # fmt: skip
            return iter((prompt.prompt,))
        scope = self._asked(agent, agent_type, window, visibility)
        visible = self._visible(scope, name)
        scope = replace(scope, selection=select(visible, 0))
        given = self._input(scope, system_instruction, instruction_file_text)
        shown = iter_context(scope.selection, visible, scope.window)
        lines = ((each.message.id, each.line) for each in shown)
        limits, view = PromptLimits(given.max_bytes, given.max_tokens), scope.view
        fitting = fit_stream(layout, given.sections, lines, limits, self._count)
        read = (view.log[view.find(message_id)] for message_id in reversed(fitting))
        left = (show(message).line for message in read if is_context(message))
        return layout.pieces(given.sections, left)

    def assemble(
        self, agent_type: str, given: AssemblerInput | Mapping[str, Any] | bytes | str
    ) -> AssemblerOutput:
        """Write the prompt for a type of agent, with the newest lines of context that fit.

        `given` is an `AssemblerInput` or its JSON.
        """
        if not isinstance(given, AssemblerInput):
            given = AssemblerInput.parse(given)
        limits = PromptLimits(given.max_bytes, given.max_tokens)
        return fit(self._assembler(agent_type), given.sections, limits, self._count)[0]

    def register(self, agent_type: str, assembler: Assembler) -> None:
        """Use an assembler of your own for a type of agent."""
        check_name(agent_type, "$.agentType")
        if not callable(assembler):
            detail = f"must be an assembler, not {describe_argument(assembler)}"
            raise ValidationError(detail, path="$.assembler", rule="argument")
        self._assemblers[normalize_agent_type(agent_type)] = assembler

    def _assembler(self, agent_type: str) -> Assembler:
        normal = normalize_agent_type(agent_type)
        assembler = self._assemblers.get(normal)
        if assembler is None:
            _log.warning(
                '[ContextManager] Unknown agentType "%s" (normalized: "%s"), '
                "using PlainTextAssembler", agent_type, normal,
            )  # fmt: skip
            return PLAIN
        return assembler

    def _scope(
        self,
        agent: str,
        agent_type: str,
        window: int | None,
        visibility: Visibility | None,
        name: str | None,
        *,
        at: int | None = None,
    ) -> PromptScope:
        scope = self._asked(agent, agent_type, window, visibility)
        if at is not None:
            scope = replace(scope, view=self.history.at(at))
        return replace(scope, selection=select(self._visible(scope, name), scope.window))

    def _asked(
        self, agent: str, agent_type: str, window: int | None, visibility: Visibility | None
    ) -> PromptScope:
        """Check what a prompt is asked for and fill in the manager's own; nothing is selected."""
        if type(agent) is not str or agent not in self._fingerprints:  # not checked before
            check_name(agent, "$.agent")
        normal = normalize_agent_type(agent_type)
        if window is None:
            window = self._window(agent, normal)
        sees = self.visibility if visibility is None else _check_visibility(visibility)
        size = _check_count(window, "$.window")
        return PromptScope(agent, normal, size, sees, self.history.view)

    def _window(self, agent: str, agent_type: str) -> int:
        """Return an agent's window: its own by its id, else that of its type, else the usual."""
        if not self.windows:
            return self.window
        by_id = {fold_name(name): size for name, size in self.windows.items()}
        by_type = {normalize_agent_type(name): size for name, size in self.windows.items()}
        own = self.windows.get(agent, by_id.get(fold_name(agent)))
        return by_type.get(agent_type, self.window) if own is None else own

    def _visible(self, scope: PromptScope, name: str | None) -> Iterator[Message]:
        """Iterate over the messages that an agent may see, the newest first."""
        if scope.visibility == "all":
            return context_messages(scope.view)
        names = [scope.agent] if name is None else [scope.agent, name]
        return self._index.visible_to(names, scope.view)

    def _input(
        self, scope: PromptScope, system: str | None, instructions: str | None
    ) -> AssemblerInput:
        for text, path in (
            (system, "$.systemInstruction"),
            (instructions, "$.instructionFileText"),
        ):
            if text is not None:
                check_text(text, path)
        current = scope.selection.current
        return AssemblerInput(
            context_messages=tuple(shown.line for shown in scope.selection.context),
            current_message="" if current is None else current.line.content,
            team_task=scope.view.team_task,
            max_bytes=self.max_bytes,
            system_instruction=system,
            instruction_file_text=instructions,
            max_tokens=self.max_tokens,
        )

    # ── sessions and snapshots ──────────────────────────────────────────────────────────────────

    def clear(self) -> None:
        """Begin a new session: no messages, no team task, handles from `msg-1`.

        The log still has every message, and `history.undo()` brings them back.
        """
        self.history.replace_all((), team_task=None, reason=SESSION)
        self._emit("history.edited", {"operation": SESSION})
        self._team_task_changed()

    def export_snapshot(self) -> dict[str, Any]:
        """Return the messages and the team task as a snapshot of version 1.

        A snapshot of version 2, with the whole history, is written by
        `palaver.stores.transfer.export_conversation`.
        """
        view = self.history.view
        return write_snapshot(view, team_task=view.team_task, timestamp=now_ms())

    def import_snapshot(self, snapshot: object) -> None:
        """Replace the messages and the team task by a snapshot of version 1, as a new session.

        The snapshot, or its JSON, is checked completely first. The import is one change, which
        `history.undo()` reverses. Markers in its messages are text and set nothing.
        """
        if isinstance(snapshot, bytes | str):
            try:
                snapshot = load_json(snapshot)
            except ValidationError as error:
                detail = f"Invalid snapshot format: {error.detail}"
                raise ValidationError(detail, path=error.path, rule="import-format") from None
        checked = read_snapshot(snapshot)
        self.history.replace_all(
            checked.messages,
            team_task=checked.team_task,
            reason=IMPORT,
            shown=self._newest(checked.messages),
        )
        self._emit("history.edited", {"operation": IMPORT})
        self._team_task_changed()

    def _emit(self, name: Any, data: Mapping[str, Any]) -> None:  # noqa: ANN401 - a Name
        # a conversation on this history and this bus has published it already
        if self.events.wanted(name) and self.history not in self.events.sources:
            self.events.emit(Event(name, self.history.id, self.history.version, data))


# ── the prompt ──────────────────────────────────────────────────────────────────────────────────


class PromptScope(Struct, frozen=True):
    """What a prompt is worked out from: the agent, its window and visibility, and the view."""

    agent: str
    agent_type: str
    window: int
    visibility: Visibility
    view: View
    selection: Selection = Selection(None)


class Prompt:
    """What an agent is given: `prompt` and `system_flag`; `explain` says where they come from."""

    def __init__(
        self,
        *,
        scope: PromptScope,
        given: AssemblerInput,
        assembler: Assembler,
        output: AssemblerOutput,
        lines: int,
        previous: PromptFingerprint | None,
        count: TokenCounter,
    ) -> None:
        """Hold what an explanation needs; `lines` is how many lines of context fit."""
        self.prompt = output.prompt
        self.system_flag = output.system_flag
        self.input = given
        self.output = output
        self._scope = scope
        self._assembler = assembler
        self._lines = lines
        self._previous = previous
        self._count = count

    def __repr__(self) -> str:
        """Return the agent and the size, as text."""
        agent = shorten(self._scope.agent, 72)
        return f"<Prompt for {agent}: {self.output.size:,} bytes, {self._lines:,} lines of context>"

    def _repr_html_(self) -> str:
        """Return the prompt as a notebook shows it."""
        return show_html(repr(self), self._rows())

    def __rich__(self) -> Any:  # noqa: ANN401 - a table of rich
        """Return the prompt as `rich` shows it."""
        return show_rich(repr(self), self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        system = [] if self.system_flag is None else [("system", self.system_flag)]
        return [
            (name, shorten(text, MOST_ALONE)) for name, text in (*system, ("prompt", self.prompt))
        ]

    @property
    def fingerprint(self) -> PromptFingerprint:
        """What the agent's next prompt is compared with."""
        selection, sections = self._scope.selection, self.input.sections
        shown = selection.context[len(selection.context) - self._lines :]
        current = () if selection.current is None else (selection.current,)
        return PromptFingerprint(
            version=self._scope.view.version,
            messages=tuple(one.message.id for one in (*shown, *current)),
            bytes=self.output.size,
            system=hash(sections.system),
            team_task=hash(sections.team_task),
        )

    def explain(self, *, since: Prompt | None = None) -> PromptExplanation:
        """Say which messages were kept and dropped, why, and how large everything is.

        The prompt is compared with `since`, or else with the agent's previous prompt.
        """
        scope, lines = self._scope, self._lines
        limits = PromptLimits(self.input.max_bytes, self.input.max_tokens)
        costs = measure(self._assembler, self.input.sections, self._count)
        entries, older = explain_messages(scope.view, scope.selection, costs, lines, limits)
        total = costs.total(lines)
        before = self._previous if since is None else since.fingerprint
        return PromptExplanation(
            agent=scope.agent,
            agent_type=scope.agent_type,
            version=scope.view.version,
            window=scope.window,
            visibility=scope.visibility,
            max_bytes=self.input.max_bytes,
            max_tokens=self.input.max_tokens,
            bytes=total.bytes,
            tokens=total.tokens,
            parts=explain_parts(costs, lines),
            entries=entries,
            older=older,
            since=None if before is None else PromptComparison.of(before, self.fingerprint),
        )


# ── reading and checking ────────────────────────────────────────────────────────────────────────


def as_message(value: object, *, at: int) -> Message:
    """Read a message that is to be added: a `Message` or a mapping, with text and a speaker.

    >>> as_message({"content": "Hi", "speaker": {"roleId": "u1", "roleName": "User"}}, at=5).role
    'user'
    >>> as_message({"content": 123}, at=5)
    Traceback (most recent call last):
    TypeError: Message content must be a string
    """
    if isinstance(value, Message):
        if value.speaker is None:
            raise TypeError(_NO_SPEAKER)
        return value
    if not value and not isinstance(value, Mapping):
        raise TypeError(_NO_MESSAGE)
    fields: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
    if not isinstance(fields.get("content"), str):
        raise TypeError(_NO_TEXT)
    speaker = fields.get("speaker")
    if not speaker and not isinstance(speaker, Mapping):
        raise TypeError(_NO_SPEAKER)
    name = speaker.get("roleId") if isinstance(speaker, Mapping) else None
    if not name:
        raise TypeError(_NO_ROLE_ID)
    complete = {"roleName": name, "type": "human", **speaker}
    return read_message({"id": new_id(), "timestamp": at, **fields, "speaker": complete}, at=at)


_NO_MESSAGE = "Message cannot be null or undefined"
_NO_TEXT = "Message content must be a string"
_NO_SPEAKER = "Message speaker is required"
_NO_ROLE_ID = "Message speaker.roleId is required"


def _truncate_task(task: str) -> str:
    data = task.encode()
    if len(data) <= MAX_TEAM_TASK_BYTES:
        return task
    cut = data[:MAX_TEAM_TASK_BYTES].decode(errors="ignore")
    _log.warning(
        "[ContextManager] TeamTask exceeded 5KB limit (%d bytes), truncated to %d bytes",
        len(data), len(cut.encode()),
    )  # fmt: skip
    return cut


def _check_count(value: object, path: str, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise ValidationError(f"must be a whole number from {least} on, not {value!r}", path=path)
    return value


def _check_visibility(value: Visibility) -> Visibility:
    if value not in ("all", "addressed"):
        detail = f"must be all or addressed, not {value!r}"
        raise ValidationError(detail, path="$.visibility", rule="visibility")
    return value


def _call(callback: Callable[[Any], object] | None, value: object) -> None:
    """Call a callback; if it raises, that is logged, since the change is already made."""
    if callback is None:
        return
    try:
        callback(value)
    except Exception:  # noqa: BLE001 - whatever it raises
        _log.exception("[ContextManager] Hook failed: %s", getattr(callback, "__name__", callback))
