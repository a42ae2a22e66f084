"""What a provider's format has to say for itself: a writer of turns and a reader of bodies.

One subclass a provider, one file a subclass. `converting` and `reading` do the rest for all of
them: pairing, joining, memory of details, notes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from palaver.wire.memory import is_apart
from palaver.wire.shapes import fits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from palaver.messages.message import Message
    from palaver.wire.mending import Turn
    from palaver.wire.names import Alphabet
    from palaver.wire.pen import Pen
    from palaver.wire.reading import Source
    from palaver.wire.shapes import Kind
    from palaver.wire.target import Target

__all__ = ["Element", "Format", "Written"]

Element: TypeAlias = dict[str, Any]
Written: TypeAlias = tuple[Element, "Message"]


class Format:
    """A provider's way to write a conversation."""

    name: ClassVar[str]
    provider: ClassVar[str]
    items: ClassVar[str]
    """The field of a body that holds the elements."""
    heads: ClassVar[tuple[str, ...]] = ()
    """The fields of a body that hold the system text."""
    tool_names: ClassVar[Alphabet]
    call_ids: ClassVar[Alphabet]
    plain: ClassVar[bool] = False
    """A text alone with something in it is an element of `role` and `content`, as it stands."""
    alternates: ClassVar[bool] = False
    """Neighbours of one role become one element, a user speaks first, and the system apart."""
    may_repeat: ClassVar[bool] = False
    """Two elements of one role may stand in a row, and were they read so, they stay apart."""
    says_failure: ClassVar[bool] = False
    """A result can say that its call failed, beside the words of it."""
    takes_attachments: ClassVar[bool] = True
    """A result can hold files."""
    fields: ClassVar[Mapping[str, Kind]]
    """Every field that the provider knows in an element, at any depth, and what it may hold."""
    opaque: ClassVar[frozenset[str]] = frozenset()
    """Those of them that hold what the provider does not look into."""

    def write(self, turn: Turn, pen: Pen) -> Iterable[Written]:
        """The elements of one turn, each with the message it comes from."""
        raise NotImplementedError

    def words(self, role: str, text: str) -> Element:
        """An element of palaver's own, to open or to close with."""
        raise NotImplementedError

    def role(self, element: Element) -> str:
        """Who speaks in an element: `user` or something else; only where `alternates`."""
        return str(element.get("role", "user"))

    def joins(self, element: Element, more: Element, owner: Message) -> bool:
        """Tell whether a neighbour becomes one with an element; only where `alternates`."""
        alike = self.role(element) == self.role(more)
        return alike and not (self.may_repeat and is_apart(owner, self.name))

    def join(self, element: Element, more: Element) -> None:
        """Add a neighbour of the same role to an element; only where `alternates`."""
        raise NotImplementedError

    def leads(self, turn: Turn) -> bool:
        """Tell whether a message that nothing was said before goes to the head of the body."""
        return self.alternates and turn.message.role == "system"

    def close(self, element: Element) -> Element:
        """The last element, of an answer to be continued, as it may stand there."""
        return element

    def holds(
        self,
        element: Element,  # noqa: ARG002 - here and below, for the formats that look
        around: tuple[Element | None, Element | None],  # noqa: ARG002
        owner: Message,  # noqa: ARG002
        target: Target,  # noqa: ARG002
    ) -> bool:
        """Tell whether a remembered element may still stand, between these two, for this target."""
        return True

    def system(self, turn: Turn, pen: Pen) -> list[Any]:
        """The blocks of a system message that leads."""
        raise NotImplementedError

    def head(self, blocks: Sequence[Any]) -> Element:
        """The fields of the body that hold the system text, made of its blocks."""
        raise NotImplementedError

    def spelled_out(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A body in the one spelling that is written, where a provider reads several."""
        return body

    def kind(self, element: Element, path: Sequence[Any]) -> Kind:  # noqa: ARG002 - as above
        """What may stand in the field at the end of a path."""
        return self.fields[path[-1]] if isinstance(path[-1], str) else ()

    def takes(self, element: Element, change: Sequence[Any]) -> bool:
        """Tell whether the provider takes an element with this change, which names known fields."""
        path = change[0]
        if any(isinstance(step, str) and step in self.opaque for step in path[:-1]):
            return True
        if len(change) == 1:
            return self.omits(element, path)
        if len(path) > 1 and isinstance(path[-1], int):  # one of a list, for another
            return fits([change[1]], self.kind(element, path[:-1]))
        return (
            bool(path) and isinstance(path[-1], str) and fits(change[1], self.kind(element, path))
        )

    def omits(self, element: Element, path: Sequence[Any]) -> bool:  # noqa: ARG002 - as above
        """Tell whether a field that palaver writes may be missing."""
        return False

    def read(self, body: Mapping[str, Any], source: Source) -> None:
        """Read a body's system text and elements into `source`."""
        raise NotImplementedError

    def pairs(self, element: Element) -> Sequence[str]:
        """The calls and results in an element, by what pairs them: no memory may change these."""
        raise NotImplementedError
