"""Write `docs/reference/`, one page for each public module, from the docstrings.

Public is what a module names in `__all__`: palaver, its packages at any depth, and the modules
directly under palaver. New ones are found by themselves. A class that a public name returns or
holds has an entry too, whether a package exports it or not. `--check` writes nothing and fails,
with a diff, where a page on disk differs.

The adapters need the frameworks that they serve, which `make compat` has: there,
`--package palaver.adapters` writes their pages into a folder of their own.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import enum
import importlib
import inspect
import pkgutil
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
APART = ("palaver.adapters",)
"""Packages whose modules need other frameworks: their pages are made where those are."""
NONE: frozenset[str] = frozenset()
STARS: dict[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or with `--check` compare them; answer the exit status."""
    parser = argparse.ArgumentParser(prog="reference", description=summary(sys.modules[__name__]))
    parser.add_argument("--check", action="store_true", help="fail where a page is out of date")
    parser.add_argument("--package", default="palaver", help="the package to describe")
    parser.add_argument("--into", type=Path, help="the folder of the pages")
    options = parser.parse_args(arguments)
    into: Path = options.into or folder(options.package)
    wanted = pages(options.package)
    found = {path.name: path.read_text("utf-8") for path in into.glob("*.md")}
    if options.check:
        drift = "".join(difference(found, wanted))
        print(drift or f"reference: {len(wanted)} pages are up to date")
        return 1 if drift else 0
    into.mkdir(parents=True, exist_ok=True)
    for name in found.keys() - wanted.keys():
        (into / name).unlink()
    for name, text in wanted.items():
        (into / name).write_text(text, "utf-8")
    print(f"reference: {len(wanted)} pages written")
    return 0


def folder(package: str) -> Path:
    """Where the pages of a package are: one that is made apart has a folder of its own.

    >>> folder("palaver.adapters").name
    'adapters'
    """
    return PAGES / package.rpartition(".")[2] if package in APART else PAGES


def difference(found: dict[str, str], wanted: dict[str, str]) -> Iterator[str]:
    """Say line by line what the pages on disk lack, and how to get it."""
    for name in sorted(found.keys() | wanted.keys()):
        yield from difflib.unified_diff(
            found.get(name, "").splitlines(keepends=True),
            wanted.get(name, "").splitlines(keepends=True),
            f"{name} on disk",
            f"{name} from the docstrings",
        )
    if found != wanted:
        yield "the reference is out of date: run `make reference`\n"


def pages(package: str) -> dict[str, str]:
    """Make every page: its file name, and its text."""
    modules = {module.__name__: module for module in public_modules(package)}
    held = held_types(modules)
    made = {f"{name}.md": page(module, modules, held) for name, module in modules.items()}
    rows = [f"- [`{name}`]({name}.md): {summary(module)}" for name, module in modules.items()]
    rows += [
        f"- [`{name}`]({folder(name).name}/README.md): made apart, beside what it needs"
        for name in APART
        if package != name and name.startswith(f"{package}.")
    ]
    made["README.md"] = document("# Reference", "Made from the docstrings.", "\n".join(rows))
    return made


def public_modules(package: str) -> Iterator[ModuleType]:
    """Find the package, its packages and its direct modules that have names to offer."""
    root = importlib.import_module(package)
    depth = package.count(".") + 1
    found = [info.name for info in inside(root) if info.ispkg or info.name.count(".") == depth]
    for name in [package, *sorted(found)]:
        if not any(step.startswith("_") for step in name.split(".")):
            module = importlib.import_module(name)
            if getattr(module, "__all__", ()):
                yield module


def inside(package: ModuleType) -> Iterator[pkgutil.ModuleInfo]:
    """Find what is in a package at any depth, but for what is made apart."""
    for info in pkgutil.iter_modules(package.__path__, prefix=f"{package.__name__}."):
        yield info
        if info.ispkg and info.name not in APART:
            yield from inside(importlib.import_module(info.name))


def held_types(modules: dict[str, ModuleType]) -> dict[str, list[type]]:
    """Find the classes that public names lead to and that no module exports, for each page.

    Public names lead to what they return and what their fields hold, and so on from there. A class
    belongs to the page of the package that it is defined in.
    """
    waiting = [getattr(module, name) for module in modules.values() for name in module.__all__]
    known = {value for value in waiting if isinstance(value, type)}
    found: dict[str, list[type]] = {name: [] for name in modules}
    while waiting:
        for cls in leads_to(waiting.pop()):
            around = [name for name in modules if f"{cls.__module__}.".startswith(f"{name}.")]
            if cls not in known and around and not cls.__module__.startswith(APART):
                known.add(cls)
                found[max(around, key=len)].append(cls)
                waiting.append(cls)
    return found


def leads_to(value: object) -> Iterator[type]:
    """Yield the classes that a function returns, that a class's fields and methods give, or its."""
    if not isinstance(value, type) and not inspect.isfunction(value):
        yield type(value)
        return
    for base in inspect.getmro(value) if isinstance(value, type) else ():
        if base.__module__ in sys.builtin_module_names:
            continue
        for name, written in inspect.get_annotations(base).items():
            if not name.startswith("_"):
                yield from named_types(written, base.__module__)
        for name, member in vars(base).items():
            if not name.startswith("_"):
                yield from returned_types(member)
    yield from returned_types(value)


def returned_types(member: object) -> Iterator[type]:
    """Yield the classes that a function, a method or a property returns."""
    function = member.fget if isinstance(member, property) else member
    function = getattr(function, "func", getattr(function, "__func__", function))
    if inspect.isfunction(function):
        function = inspect.unwrap(function)
        yield from named_types(function.__annotations__.get("return"), function.__module__)


def named_types(written: object, module: str, aliases: frozenset[str] = NONE) -> Iterator[type]:
    """Yield the classes that an annotation names, as it is written in a module."""
    try:
        tree = ast.parse(annotation(written).strip(), mode="eval")
    except SyntaxError:
        return
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if name not in aliases:
                yield from resolved_types(name, module, aliases | {name})
            case ast.Constant(str(text)):
                yield from named_types(text, module, aliases)
            case _:
                pass


def resolved_types(name: str, module: str, aliases: frozenset[str]) -> tuple[type, ...]:
    """Find the class that a name means in a module, or the classes that an alias stands for.

    A name that is imported for type checkers only is looked up where it comes from.
    """
    home = importlib.import_module(module)
    value = getattr(home, name, None)
    if isinstance(value, type):
        return (value,)
    package = module.split(".", maxsplit=1)[0]
    for statement in parsed(Path(home.__file__ or "")):
        match statement:
            case ast.ImportFrom(module=str(other), names=names) if other.startswith(package):
                for each in names:
                    if name == (each.asname or each.name):
                        return resolved_types(each.name, other, aliases)
            case ast.Assign(value=alias) | ast.AnnAssign(value=ast.expr() as alias):
                if name in assigned(statement) and not isinstance(alias, ast.Call):
                    return tuple(named_types(ast.unparse(alias), module, aliases))
            case _:
                pass
    return ()


@cache
def parsed(path: Path) -> list[ast.stmt]:
    """Parse a file once, however many of its names are looked up."""
    return list(statements(ast.parse(path.read_text("utf-8"))))


def page(module: ModuleType, modules: dict[str, ModuleType], held: dict[str, list[type]]) -> str:
    """Make one module's page. A name that a deeper page explains is only linked."""
    below = [m for name, m in modules.items() if name.startswith(f"{module.__name__}.")]
    sections: list[str] = []
    links: list[str] = []
    for name in module.__all__:
        value = getattr(module, name)
        if name.startswith("__"):
            continue
        if value in below:
            links.append(f"- [`{name}`]({module.__name__}.{name}.md): {summary(value)}")
            continue
        home = next((m for m in below if name in m.__all__ and getattr(m, name) is value), None)
        if home is None:
            sections.append(section(module, name, value))
        else:
            place = f"{home.__name__}.md#{name.lower()}"
            links.append(f"- [`{name}`]({place}): {summary(value)}")
    for cls in sorted(held[module.__name__], key=lambda each: each.__name__):
        place = f"Import it from `{cls.__module__}`."
        sections.append(document(f"## {cls.__name__}", place, *class_blocks(cls.__name__, cls)))
    return document(f"# {module.__name__}", prose(module), "\n".join(links), *sections)


def section(module: ModuleType, name: str, value: object) -> str:
    """Explain one public name: how it is called, what it says, what it holds."""
    if isinstance(value, type):
        return document(f"## {name}", *class_blocks(name, value))
    if callable(value) and inspect.isroutine(value):
        return document(f"## {name}", fenced(signature(name, value)), prose(value))
    code, text = constant(module, name)
    return document(f"## {name}", fenced(code) if code else "", text)


def class_blocks(name: str, cls: type) -> Iterator[str]:
    """Explain a class: its fields or members, then the methods and properties it documents."""
    own = dict(vars(cls))
    bases = [base.__name__ for base in cls.__bases__ if base is not object]
    head = f"class {name}({', '.join(bases)})" if bases else f"class {name}"
    yield fenced(f"{head}\n\n{signature(name, cls)}" if "__init__" in own else head)
    yield prose(cls)
    if issubclass(cls, enum.Enum):
        yield "\n".join(f"- `{member.name}` = `{member.value!r}`" for member in cls)
    if issubclass(cls, msgspec.Struct):
        yield fields(cls)
    for key, member in own.items():
        unwrapped = getattr(member, "__func__", member)
        if key.startswith("_") or not prose(unwrapped):
            continue
        if isinstance(member, property):
            yield f"### {name}.{key}\n\n{prose(member)}"
        elif inspect.isfunction(unwrapped):
            head = f"### {name}.{key}\n\n{fenced(signature(key, unwrapped))}"
            yield document(head, prose(unwrapped)).rstrip()


def fields(struct: type[msgspec.Struct]) -> str:
    """List a struct's fields with their types as written, JSON names and defaults."""
    written: dict[str, object] = {}
    for base in reversed(struct.__mro__):
        written |= inspect.get_annotations(base)
    rows = ["| field | type | in JSON | default |", "|---|---|---|---|"]
    for field in msgspec.structs.fields(struct):
        kind = annotation(written.get(field.name, field.type)).replace("|", "\\|")
        if field.default is not msgspec.NODEFAULT:
            default = f"`{steady(repr(field.default))}`"
        elif field.default_factory is not msgspec.NODEFAULT:
            default = f"`{getattr(field.default_factory, '__name__', 'made')}()`"
        else:
            default = "required"
        rows.append(f"| `{field.name}` | `{kind}` | `{field.encode_name}` | {default} |")
    return "\n".join(rows) if len(rows) > 2 else ""  # noqa: PLR2004 - the two lines of the head


def annotation(written: object) -> str:
    """Spell a type as in the source, or as near to it as can be."""
    return written if isinstance(written, str) else inspect.formatannotation(written)


def signature(name: str, function: object) -> str:
    """Spell how a function is called, one argument a line where it gets long."""
    if not callable(function):
        return name
    try:
        spelled = inspect.signature(function)
    except ValueError:
        return f"{name}(...)"
    arguments = [steady(str(argument)) for argument in _unquoted(spelled)]
    result = spelled.return_annotation
    arrow = "" if result is inspect.Signature.empty else f" -> {annotation(result)}"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        name = f"async {name}"
    line = f"{name}({', '.join(arguments)}){arrow}"
    if len(line) <= 100:  # noqa: PLR2004 - the line length of the project
        return line
    body = "".join(f"    {argument},\n" for argument in arguments)
    return f"{name}(\n{body}){arrow}"


def _unquoted(spelled: inspect.Signature) -> Iterator[str]:
    """Spell the arguments with `/` and `*` in place and no quotes around the types."""
    kinds = inspect.Parameter
    seen_star = False
    previous = None
    for argument in spelled.parameters.values():
        if previous is kinds.POSITIONAL_ONLY and argument.kind is not previous:
            yield "/"
        if argument.kind is kinds.KEYWORD_ONLY and not seen_star:
            yield "*"
        seen_star = seen_star or argument.kind in {kinds.VAR_POSITIONAL, kinds.KEYWORD_ONLY}
        stars = STARS.get(argument.kind, "")
        typed = argument.annotation is not kinds.empty
        kind = f": {annotation(argument.annotation)}" if typed else ""
        equals = " = " if typed else "="
        default = "" if argument.default is kinds.empty else f"{equals}{argument.default!r}"
        yield f"{stars}{argument.name}{kind}{default}"
        previous = argument.kind
    if previous is kinds.POSITIONAL_ONLY:
        yield "/"


def constant(module: ModuleType, name: str) -> tuple[str, str]:
    """Find a constant in the source: its assignment as written, and the text below it."""
    for source in sources(module):
        body = list(statements(ast.parse(source)))
        for statement, following in zip(body, [*body[1:], None], strict=True):
            if name not in assigned(statement):
                continue
            code = ast.get_source_segment(source, statement) or ""
            match following:
                case ast.Expr(ast.Constant(str(text))):
                    return code, pycon(inspect.cleandoc(text))
                case _:
                    return code, ""
    return "", ""


def statements(module: ast.Module) -> Iterator[ast.stmt]:
    """Yield a module's statements, with those of an `if TYPE_CHECKING:` in its place."""
    for statement in module.body:
        yield from statement.body if isinstance(statement, ast.If) else [statement]


def assigned(statement: ast.stmt) -> list[str]:
    """Name what a statement assigns."""
    match statement:
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


def sources(module: ModuleType) -> Iterator[str]:
    """Read the module's source and, for a package, the sources inside it."""
    path = Path(module.__file__ or "")
    inside = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else []
    for each in [path, *inside]:
        yield each.read_text("utf-8")


def summary(thing: object) -> str:
    """Take the first paragraph of a docstring, as one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n", 1)[0].split())


def prose(thing: object) -> str:
    """Take a thing's own docstring, not one it inherits, with its examples fenced."""
    own = getattr(thing, "__doc__", None)
    return pycon(inspect.cleandoc(own)) if own else ""


def pycon(text: str) -> str:
    """Fence the examples in a docstring, so that they show as code."""
    blocks = text.split("\n\n")
    return "\n\n".join(
        f"```pycon\n{inspect.cleandoc(block)}\n```" if block.lstrip().startswith(">>>") else block
        for block in blocks
    )


def fenced(code: str) -> str:
    """Show code that is read and not run, so no `python` fence."""
    return f"```text\n{code}\n```"


def steady(text: str) -> str:
    """Drop what differs from run to run.

    >>> steady("<object object at 0x7f01>")
    '<object object>'
    """
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def document(*blocks: str) -> str:
    """Join the blocks that are not empty by a blank line."""
    return "\n\n".join(block.strip("\n") for block in blocks if block.strip()) + "\n"


if __name__ == "__main__":
    sys.exit(main())
