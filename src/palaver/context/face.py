"""S2's ContextManager: a thin face over a history, which stays the one source of truth.

It keeps no message. What is added goes into the history; what an agent is shown is worked out from
the history's view of the moment; clearing and importing are ordinary changes of the history, which
`undo` and `rollback` take back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from palaver.context.adding import as_message
from palaver.context.assemblers import ASSEMBLERS, PLAIN, PLAIN_TYPE, normalize_agent_type
from palaver.context.budget import Limits, fitting
from palaver.context.choosing import choose
from palaver.context.markers import team_task_in
from palaver.context.prompts import Look, Prompt
from palaver.context.sections import AssemblerInput
from palaver.context.sight import CONTEXT_ROLES, Sight, spoken
from palaver.errors import ValidationError
from palaver.events import Event, Events
from palaver.history import History
from palaver.history.handles import IMPORT, SESSION
from palaver.messages.gate import EMPTY, check_name, check_text
from palaver.messages.ids import now_ms
from palaver.stores.version1 import read_snapshot, write_snapshot
from palaver.tokens import counter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from palaver.context.assemblers import Assembler
    from palaver.context.explaining import Given
    from palaver.context.sections import AssemblerOutput
    from palaver.context.sight import Visibility
    from palaver.messages import Message
    from palaver.tokens import Counter

__all__ = ["MAX_BYTES", "MAX_TEAM_TASK_BYTES", "WINDOW", "ContextManager"]

WINDOW: Final = 5
"""How many messages before the current one an agent is shown, unless told otherwise."""
MAX_BYTES: Final = 768 * 1024
"""How many bytes a prompt and its system flag may have, unless told otherwise."""
MAX_TEAM_TASK_BYTES: Final = 5 * 1024
"""How many bytes a team task may have; a longer one is cut."""
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

    def __init__(
        self,
        history: History | None = None,
        *,
        window: int = WINDOW,
        windows: Mapping[str, int] = EMPTY,
        max_bytes: int = MAX_BYTES,
        max_tokens: int | None = None,
        count: Counter | None = None,
        visibility: Visibility = "all",
        assemblers: Mapping[str, Assembler] = EMPTY,
        on_message_added: Callable[[Message], object] | None = None,
        on_team_task_changed: Callable[[str | None], object] | None = None,
        events: Events | None = None,
    ) -> None:
        """Look at a history, one of a store's or any other; by itself, at a new one.

        `windows` are for agents who see more or less than the others, by id or by type. `count`
        counts tokens in place of the best counter there is. The hooks are called after the change.
        """
        self.history = History() if history is None else history
        self.window = _whole(window, "$.window")
        self.windows = {name: _whole(size, f"$.windows.{name}") for name, size in windows.items()}
        self.max_bytes = _whole(max_bytes, "$.maxBytes")
        self.max_tokens = None if max_tokens is None else _whole(max_tokens, "$.maxTokens")
        self.visibility: Visibility = _visibility(visibility)
        self.events = Events() if events is None else events
        self._count = counter() if count is None else count
        self._assemblers: dict[str, Assembler] = {**ASSEMBLERS}
        for name, assembler in assemblers.items():
            self.register(name, assembler)
        self._on_message_added = on_message_added
        self._on_team_task_changed = on_team_task_changed
        self._sight = Sight()
        self._given: dict[str, Given] = {}

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    def add_message(self, message: Message | Mapping[str, Any] | None) -> Message:
        """Add a message and return it; a team task in its text becomes the team's."""
        added = self.history.append(as_message(message, at=now_ms()))
        _log.debug("[ContextManager] Message added: %s", added.id)
        _call(self._on_message_added, added)
        self._emit("message.added", {"id": added.id, "role": added.role})
        task = team_task_in(added.text) if added.role in CONTEXT_ROLES else None
        if task is not None:
            self.set_team_task(task)
        return added

    @property
    def messages(self) -> list[Message]:
        """All messages, as a list of your own."""
        return self.history.messages

    @property
    def latest(self) -> Message | None:
        """The last message, if there is one."""
        view = self.history.view
        return view[-1] if len(view) else None

    def message(self, which: int | str | Message) -> Message:
        """A message by its index, its id or its handle, such as `msg-1`."""
        view = self.history.view
        return view.log[view.find(which)]

    def handle(self, which: int | str | Message) -> str | None:
        """The handle of a message: `msg-N` for the N-th since the session began."""
        return self.history.view.handle(which)

    # ── the team task ───────────────────────────────────────────────────────────────────────────

    @property
    def team_task(self) -> str | None:
        """What the team is at work on."""
        return self.history.team_task

    def set_team_task(self, task: str | None) -> None:
        """Say what the team is at work on; more than 5 KB is cut at a character."""
        if task is not None:
            check_text(task, "$.teamTask")
            task = _cut(task)
        self.history.set_team_task(task)
        self._task_changed()

    def _task_changed(self) -> None:
        task = self.team_task
        _call(self._on_team_task_changed, task)
        self._emit("team_task.changed", {"teamTask": task})

    # ── what an agent sees ──────────────────────────────────────────────────────────────────────

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
        """What an agent is shown, ready for an assembler.

        An agent is known by its id and, where `name` says it, by its name. `window` and
        `visibility` go before what the manager has for it.
        """
        look = self._look(agent, agent_type, window, visibility, name)
        return self._input(look, system_instruction, instruction_file_text)

    def assemble(self, agent_type: str, given: AssemblerInput) -> AssemblerOutput:
        """Write the prompt for a type of agent: what must be there, and the newest that fits."""
        limits = Limits(given.max_bytes, given.max_tokens)
        return fitting(self._assembler(agent_type), given.sections, limits, self._count)[0]

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
    ) -> Prompt:
        r"""Both in one: the prompt of an agent, which can be explained.

        >>> from palaver.history import History
        >>> from palaver.messages import user
        >>> context = ContextManager(History([user("one"), user("two"), user("three")]))
        >>> prompt = context.prompt_for("max", window=1)
        >>> prompt.prompt
        'user: two\n\nthree'
        >>> [(entry.handle, entry.reason) for entry in prompt.explain().entries]
        [('msg-2', 'fits'), ('msg-3', 'current')]
        """
        look = self._look(agent, agent_type, window, visibility, name)
        given = self._input(look, system_instruction, instruction_file_text)
        assembler = self._assembler(agent_type)
        limits = Limits(given.max_bytes, given.max_tokens)
        output, kept = fitting(assembler, given.sections, limits, self._count)
        previous = self._given.get(agent)
        prompt = Prompt(
            look=look,
            given=given,
            assembler=assembler,
            output=output,
            kept=kept,
            previous=previous,
            count=self._count,
        )
        self._given[agent] = prompt.given
        return prompt

    def register(self, agent_type: str, assembler: Assembler) -> None:
        """Use an assembler of your own for a type of agent."""
        check_name(agent_type, "$.agentType")
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

    def _look(
        self,
        agent: str,
        agent_type: str,
        window: int | None,
        visibility: Visibility | None,
        name: str | None,
    ) -> Look:
        check_name(agent, "$.agent")
        normal = normalize_agent_type(agent_type)
        if window is None:
            window = self.windows.get(agent, self.windows.get(normal, self.window))
        window = _whole(window, "$.window")
        sees = self.visibility if visibility is None else _visibility(visibility)
        view = self.history.view
        names = [agent] if name is None else [agent, name]
        visible = spoken(view) if sees == "all" else self._sight.seen_by(names, view)
        return Look(agent, normal, window, sees, view, choose(visible, window))

    def _input(self, look: Look, system: str | None, instructions: str | None) -> AssemblerInput:
        for text, path in (
            (system, "$.systemInstruction"),
            (instructions, "$.instructionFileText"),
        ):
            if text is not None:
                check_text(text, path)
        current = look.choice.current
        return AssemblerInput(
            context_messages=tuple(shown.line for shown in look.choice.context),
            current_message="" if current is None else current.line.content,
            team_task=look.view.team_task,
            max_bytes=self.max_bytes,
            system_instruction=system,
            instruction_file_text=instructions,
            max_tokens=self.max_tokens,
        )

    # ── sessions and snapshots ──────────────────────────────────────────────────────────────────

    def clear(self) -> None:
        """Begin a new session: no messages, no team task, handles from `msg-1`.

        The log keeps everything, and `history.undo()` brings it back.
        """
        self.history.replace_all((), team_task=None, reason=SESSION)
        self._emit("history.edited", {"operation": SESSION})
        self._task_changed()

    def export_snapshot(self) -> dict[str, Any]:
        """What was said and the team task, as S2's snapshot of version 1.

        The whole history, version 2, is `palaver.stores.snapshots.export_conversation`'s.
        """
        view = self.history.view
        return write_snapshot(view, team_task=view.team_task, timestamp=now_ms())

    def import_snapshot(self, snapshot: object) -> None:
        """Put a snapshot of version 1 in the place of what is there, as a new session.

        Everything is checked first; then it is one change, which `history.undo()` takes back.
        Markers in it are text: they set nothing.
        """
        checked = read_snapshot(snapshot)
        self.history.replace_all(checked.messages, team_task=checked.team_task, reason=IMPORT)
        self._emit("history.edited", {"operation": IMPORT})
        self._task_changed()

    def _emit(self, name: Any, data: Mapping[str, Any]) -> None:  # noqa: ANN401 - a Name
        if self.events.wanted(name):
            self.events.emit(Event(name, self.history.id, self.history.version, data))


def _call(hook: Callable[[Any], object] | None, value: object) -> None:
    """Call a hook; one that fails is logged and changes nothing, for the change is made."""
    if hook is None:
        return
    try:
        hook(value)
    except Exception:  # noqa: BLE001 - whatever it raises
        _log.exception("[ContextManager] Hook failed: %s", getattr(hook, "__name__", hook))


def _cut(task: str) -> str:
    data = task.encode()
    if len(data) <= MAX_TEAM_TASK_BYTES:
        return task
    cut = data[:MAX_TEAM_TASK_BYTES].decode(errors="ignore")
    _log.warning(
        "[ContextManager] TeamTask exceeded 5KB limit (%d bytes), truncated to %d bytes",
        len(data), len(cut.encode()),
    )  # fmt: skip
    return cut


def _whole(value: object, path: str) -> int:
    if type(value) is not int or value < 0:
        raise ValidationError(f"must be a whole number from 0 on, not {value!r}", path=path)
    return value


def _visibility(value: Visibility) -> Visibility:
    if value not in ("all", "addressed"):
        detail = f"must be all or addressed, not {value!r}"
        raise ValidationError(detail, path="$.visibility", rule="CX-06")
    return value
