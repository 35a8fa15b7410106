"""Templates of all messages, read from the source with `ast`.

A message is one call: an error that is raised or made, a notice, a finding. Its texts are templates: `{name}` stands for an
interpolated value, and alternatives of a conditional expression are separated by ` | `. A local variable is replaced by the
texts that its function assigns to it.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from kfjob.base import errors

SOURCE = Path(errors.__file__).parent

ERRORS = {name for name, value in vars(errors).items() if isinstance(value, type)} | {
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)
}
PARTS = ("title", "location", "cause", "detail", "message", "what", "why", "reason", "said", "text", "remedy", "hint", "help")
ELSEWHERE = {"option", "Option", "Field", "Rule"}  # these texts have a catalogue of their own
NOTICES = {"notice", "_notice", "notify", "_notify", "echo", "say", "warn", "write", "_write"}
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module


def texts_of(node: ast.AST) -> str:
    """Return the text of an expression that stands outside functions."""
    return " | ".join(_texts(node, ast.Module(body=[], type_ignores=[])))


def package_modules() -> dict[str, list[Path]]:
    """Return the modules of every package of kfjob but the trainer; `kfjob` holds the modules that are in no package."""
    packages = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).parts
        packages[parts[0] if len(parts) > 1 else "kfjob"].append(path)
    packages.pop("trainer")
    return dict(packages)


def error_catalogue(modules: list[Path]) -> str:
    """Return every error that the modules raise or make."""
    return _catalogue(modules, errors=True)


def notice_catalogue(modules: list[Path]) -> str:
    """Return every other call with a text: notices, findings, output."""
    return _catalogue(modules, errors=False)


def _catalogue(modules: list[Path], *, errors: bool) -> str:
    entries = set()
    for path in modules:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        raised = {id(node.exc) for node in ast.walk(tree) if isinstance(node, ast.Raise)}
        for function, call in _calls(tree, tree):
            name = _label(call.func)
            is_error = id(call) in raised or name in ERRORS
            if name not in ELSEWHERE and is_error is errors and (entry := _entry(name, call, function, is_error=is_error)):
                entries.add(entry)
    return "\n".join(sorted(entries))


def _calls(node: ast.AST, function: Function) -> Iterator[tuple[Function, ast.Call]]:
    """Yield every call with the function that it is in."""
    for child in ast.iter_child_nodes(node):
        inner = child if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(child, ast.Call):
            yield inner, child
        yield from _calls(child, inner)


def _entry(name: str, call: ast.Call, function: Function, *, is_error: bool) -> str:
    """Return the texts of a call, one part a line; empty if it has no text in words."""
    parts = []
    for argument in call.args:
        parts += [("", text) for text in _texts(argument, function)]
    for keyword in call.keywords:
        if keyword.arg in PARTS:
            parts += [(f"{keyword.arg}: ", text) for text in _texts(keyword.value, function)]
    worded = [part for part in parts if " " in part[1].strip()]
    if not is_error and not (name in NOTICES or any(label for label, _ in worded) or _is_finding(call, worded)):
        return ""
    if not worded:
        return ""
    heading = [name] if is_error else []  # only the class of an error has a meaning: its exit code
    return "\n".join([*heading, *(f"  {label}{text}" for label, text in parts), ""])


def _is_finding(call: ast.Call, worded: list[tuple[str, str]]) -> bool:
    """Whether the call has a text and is a statement's own words, not a pattern or a format."""
    name = _label(call.func)
    return bool(worded) and name in {"ok", "fail", "error", "warning", "skip", "fix", "refuse", "Value", "Note", "_fail", "_ok"}


def _texts(node: ast.AST, function: Function, *, depth: int = 3) -> list[str]:
    """Return the texts that an expression can be; empty if it is not a text."""
    match node:
        case ast.Constant(value=str(value)):
            texts = [value.replace("\n", "\\n")]
        case ast.JoinedStr(values=values):
            texts = ["".join(_piece(value) for value in values)]
        case ast.BinOp(left=left, op=ast.Add(), right=right) if _has_text(node):
            sides = (_texts(side, function, depth=depth) or [f"{{{_label(side)}}}"] for side in (left, right))
            texts = ["".join(" | ".join(side) for side in sides)]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(separator)), attr="join"), args=[inner]):
            texts = [f"{{{_alternative_words(inner)}}} joined with {separator!r}"] if _has_text(inner) else []
        case ast.Name(id=name) if depth:
            texts = [text for value in _assigned(name, function) for text in _texts(value, function, depth=depth - 1)]
        case _:
            texts = [text for part in _alternatives(node) for text in _texts(part, function, depth=depth)]
    return texts


def _alternatives(node: ast.AST) -> list[ast.expr]:
    """Return the expressions of which one or several become the value."""
    match node:
        case ast.IfExp(body=body, orelse=other):
            return [body, other]
        case ast.BoolOp(values=values) | ast.Tuple(elts=values) | ast.List(elts=values):
            return values
    return []


def _assigned(name: str, function: Function) -> Iterator[ast.AST]:
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                yield value
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.AST() as value) if target == name:
                yield value
            case ast.NamedExpr(target=ast.Name(id=target), value=value) if target == name:
                yield value
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                yield from (v for t, v in zip(targets, values, strict=False) if isinstance(t, ast.Name) and t.id == name)


def _piece(value: ast.AST) -> str:
    if isinstance(value, ast.Constant):
        return str(value.value).replace("\n", "\\n")
    assert isinstance(value, ast.FormattedValue)
    return f"{{{_alternative_words(value.value) or _label(value.value)}}}"


def _alternative_words(node: ast.AST) -> str:
    """Return the texts inside an expression, separated by ` | `; empty if it has none."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_piece(value) for value in node.values)
    if isinstance(node, ast.Constant):
        return str(node.value).replace("\n", "\\n") if isinstance(node.value, str) else ""
    children = [node.value] if isinstance(node, ast.Subscript) else list(ast.iter_child_nodes(node))
    texts = [text for child in children if (text := _alternative_words(child))]
    return " | ".join(texts) if any(text.strip(" ,`") for text in texts) else ""


def _has_text(node: ast.AST) -> bool:
    return bool(_alternative_words(node))


def _label(node: ast.AST) -> str:
    """Return a short name for an interpolated value."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=func):
            return _label(func)
        case ast.Subscript(value=value):
            return _label(value)
    return "…"
