"""Every regular expression of the package needs linear time: for hostile shapes, and for repetitions of its own parts.

It also means the same on every supported Python.

All patterns are found automatically: a new one takes part. Patterns of `kfjob.base.patterns` are RE2's and linear by design;
they must compile here. A pattern of `re` is searched in long texts within a limit of CPU time: a linear one needs a
hundredth of it, a quadratic one more.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kfjob
from kfjob.base.patterns import Pattern
from kfjob.joblog.diagnose.rules import RULES
from kfjob.joblog.lines.line_text import MATCHED_CHARACTERS, cut_line
from kfjob.joblog.lines.prefixes import clean_line
from kfjob.redaction.token_shapes import TOKEN_SHAPES

ROOT = Path(kfjob.__file__).parent
CPU_SECONDS = 0.06
LENGTH = 20_000
UNITS = (
    "a", " ", "\t", "0", "A", "_", "-", ".", "/", ",", ":", "=", "[", "]", "(", "{", "'", '"', "\\", "|", "%", "\r",
    "\x1b[", "\x1b]", "a ", "a.", "a-", "a/", "0,", "0.", "a=", "'a': '1'", "Warning", "2026-11-21 08:30:00 ",
    "[rank0]: ", "W0101 00:00:00.0 ", "loss: 1 ", "step 1 ", "12%|█| 1/2 [", "$a", "${a}", "FROM a ", "é", "sk-a",
    "://", "a:", "--a ", "0;", "\x1bP",
)  # fmt: skip
"""The shapes are repetitions of these, with an end that fits nothing."""
SEPARATORS = ("", "-", " ", "\n", ".")
"""Text between the repetitions of a pattern's own parts: a word, a line or a name begins anew at each."""
COMMON_SEPARATORS = ("", "-", "\n")
"""Separators of the short test; the long one takes all."""
METHODS = ("search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer")
OF_USERS = {
    "kfjob.objects.crd_schema": "the patterns of the CRD, for values of the user's own file",
    "kfjob.redaction.token_shapes": "the rows of `TOKEN_SHAPES`, whose patterns are searched below",
    "kfjob.joblog.agents.program_lines": "the names in `FIELDS` and `SETTINGS`, each with one repeat at most",
    "kfjob.joblog.prefilter": "the escaped prefix of a table's header, of limited length",
    "kfjob.image.build.engine_process": "a loop over the table `_SYMPTOMS`, which is searched below",
}
"""Modules that pass a variable to `re`, and why that is safe."""


ANCHORED = {
    "kfjob.source.env_file": "a function takes the pattern and matches it at one position",
}
"""Modules whose constants are used by `match` only, in a form that is not found."""


class Use(NamedTuple):
    """A pattern of `re` and how it is applied."""

    module: str
    pattern: str
    flags: int
    method: str


@cache
def modules() -> tuple[str, ...]:
    found = [info.name for info in pkgutil.walk_packages(kfjob.__path__, "kfjob.")]
    return tuple(name for name in found if not name.startswith("kfjob.trainer.") and not name.endswith("__main__"))


@cache
def source(module: str) -> ast.Module:
    file = ROOT.parent / (module.replace(".", "/") + ".py")
    return ast.parse((file if file.exists() else ROOT.parent / module.replace(".", "/") / "__init__.py").read_text())


@cache
def methods_by_name(module: str) -> dict[str, set[str]]:
    """Return how a module uses every name: `_RANKS.match(…)` counts for `_RANKS`, `names.DNS_1123.match(…)` for `DNS_1123`."""
    methods: dict[str, set[str]] = {}
    for node in ast.walk(source(module)):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            methods.setdefault(owner, set()).add(node.attr)
    return methods


def methods_of(module: str, name: str) -> set[str]:
    """Return how the constant of a module is used there, or else in the modules that import it; unknown uses are searches."""
    own = methods_by_name(module).get(name, set())
    used = own if name.startswith("_") else own.union(*(methods_by_name(other).get(name, set()) for other in modules()))
    return {method if method in {"match", "fullmatch"} else "search" for method in used} or {
        "match" if module in ANCHORED else "search"
    }


def values(value: Any, depth: int = 2) -> Iterator[Any]:
    """Yield the value, and what containers hold."""
    yield value
    if depth and isinstance(value, (tuple, list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from values(item, depth - 1)


class Placeholders(dict[str, str]):
    """Stands for the local variables in an f-string of a module with these names."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        super().__init__()
        self.namespace = namespace

    def __missing__(self, name: str) -> str:
        if name in self.namespace or name.isupper() or name.startswith("_"):
            raise KeyError(name)  # a constant or an import of the module
        return "x"


def compiled_uses(module: str) -> Iterator[Use]:
    for name, value in vars(importlib.import_module(module)).items():
        for pattern in values(value):
            if isinstance(pattern, re.Pattern):
                text = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
                for method in methods_of(module, name):
                    yield Use(module, text, pattern.flags & ~re.UNICODE, method)


def inline_uses(module: str) -> Iterator[Use]:
    """Yield the patterns in `re.search(…)` and `re.compile(…)`; evaluated in the module, because they may name constants."""
    namespace = vars(importlib.import_module(module))
    tree = source(module)
    local = nodes_in_functions(tree)
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)):
            continue
        if node.func.value.id != "re" or node.func.attr not in {*METHODS, "compile"}:
            continue
        try:
            locals_ = Placeholders(namespace) if isinstance(node.args[0], ast.JoinedStr) else {}
            text = eval(compile(ast.Expression(node.args[0]), module, "eval"), namespace, locals_)  # noqa: S307 - our own source
        except NameError:
            if node in local:
                assert module in OF_USERS, f"{module}:{node.lineno} passes a variable to `re`: use kfjob.base.patterns.Pattern"
            continue
        if node.func.attr != "compile" or node in local:
            method = node.func.attr if node.func.attr in {"match", "fullmatch"} else "search"
            yield Use(module, text.decode("latin-1") if isinstance(text, bytes) else text, 0, method)


def nodes_in_functions(tree: ast.Module) -> set[ast.AST]:
    functions = (item for item in ast.walk(tree) if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node for function in functions for node in ast.walk(function)}


@cache
def uses() -> tuple[Use, ...]:
    shapes = {Use("kfjob.redaction.token_shapes", shape.pattern, 0, "search") for shape in TOKEN_SHAPES}
    return tuple(sorted(shapes.union(*({*compiled_uses(module), *inline_uses(module)} for module in modules()))))


def linear_patterns() -> Iterator[Pattern]:
    for module in modules():
        for value in vars(importlib.import_module(module)).values():
            yield from (item for item in values(value) if isinstance(item, Pattern))
    yield from (rule.regex for rule in RULES if rule.pattern)


def example(pattern: str) -> list[str]:
    """Return texts that match the beginnings of the pattern: repeated, they are what it is worst at."""
    parser: Any = importlib.import_module("re._parser")
    return list(dict.fromkeys(_beginnings(parser.parse(pattern))))


def _beginnings(items: Any) -> Iterator[str]:
    text = ""
    for operation, argument in items:
        for branch in argument[1] if str(operation) == "BRANCH" else ():  # each branch has a worst text of its own
            yield from (text + beginning for beginning in _beginnings(branch))
        if str(operation) == "SUBPATTERN":
            yield from (text + beginning for beginning in _beginnings(argument[-1]))
        text += _example(str(operation), argument)
        yield text


def _example(operation: str, argument: Any) -> str:
    if operation in {"LITERAL", "IN"}:
        return chr(argument) if operation == "LITERAL" else _member(argument)
    if operation in {"NOT_LITERAL", "ANY"}:
        return "x" if argument != ord("x") else "y"
    if operation in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
        low, high, items = argument
        return _join(items) * int(min(max(low, 1), high))
    if operation == "SUBPATTERN":
        return _join(argument[-1])
    if operation in {"ASSERT", "ATOMIC_GROUP"}:
        return _join(argument[-1] if operation == "ASSERT" else argument)
    return _join(argument[1][0]) if operation == "BRANCH" else ""


def _join(items: Any) -> str:
    return "".join(_example(str(name), value) for name, value in items)


def _member(items: Any) -> str:
    kinds = {"CATEGORY_DIGIT": "0", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "w"}
    for operation, argument in items:
        match str(operation):
            case "LITERAL":
                return chr(argument)
            case "RANGE":
                return chr(argument[0])
            case "CATEGORY":
                return kinds.get(str(argument), "x")
    return "x"


def find_branching_repeats(pattern: str, flags: int = 0) -> list[str]:
    """Return what a possessive repeat repeats apart from single characters.

    CPython before 3.11.5 takes up such a repeat behind the text that it tried last: `(?:ab?c)*+` matches all of "aca". An
    atomic group means the same and is matched rightly everywhere: `(?>(?:ab?c)*)`.
    """
    parser: Any = importlib.import_module("re._parser")
    single = {"LITERAL", "NOT_LITERAL", "IN", "ANY"}
    return [
        str(operation)
        for name, argument in _walk(parser.parse(pattern, flags & ~re.DEBUG))
        if name == "POSSESSIVE_REPEAT"
        for operation, _ in argument[2]
        if str(operation) not in single
    ]


def _walk(items: Any) -> Iterator[tuple[str, Any]]:
    """Yield every operation of a parsed pattern with its argument."""
    parser: Any = importlib.import_module("re._parser")
    if isinstance(items, parser.SubPattern):
        for operation, argument in items:
            yield str(operation), argument
            yield from _walk(argument)
    elif isinstance(items, (tuple, list)):
        for item in items:
            yield from _walk(item)


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after this much CPU time of the process; `re` looks at signals while it searches."""

    def stop(*_: object) -> None:
        raise TimeoutError

    previous = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


def find_slow(
    use: Use, length: int = LENGTH, seconds: float = CPU_SECONDS, separators: tuple[str, ...] = COMMON_SEPARATORS
) -> str:
    """Return the repeated text for which the pattern is not linear; "" if it is linear for all."""
    compiled = re.compile(use.pattern, use.flags)
    examples = [separator + text for text in example(use.pattern) for separator in separators if text]
    for unit in dict.fromkeys((*UNITS, *examples)):
        if not unit:
            continue
        text = unit * (length // len(unit)) + "\0"
        try:
            with cpu_limit(seconds):
                getattr(compiled, use.method)(text)
        except TimeoutError:
            return unit
    return ""


def test_patterns_are_found():
    assert len(uses()) > 70
    assert len(list(linear_patterns())) > 120
    assert any(use.module == "kfjob.lint.secrets" or "secret" in use.module for use in uses())


def test_test_notices_a_slow_pattern():
    length = 2 * LENGTH  # a fast machine searches a quadratic one of the usual length within the limit
    assert find_slow(Use("", r"\w*Warning: ", 0, "search"), length) == "a"
    assert find_slow(Use("", r"abc.*def", 0, "search"), length).startswith("abc")
    assert find_slow(Use("", r"xyz|abc.*def", 0, "search"), length).startswith("abc")
    assert find_slow(Use("", r"\$(?:\{(\w+)(?::-([^}]*))?\}|\w+)", 0, "search"), length).startswith("${")
    assert find_slow(Use("", r"\beyJ[\w-]{10,}\.", 0, "search"), length).startswith("-eyJ")
    assert find_slow(Use("", r"(?m)^key:(?s:.*)^end", 0, "search"), length).startswith("\nkey")


def test_test_notices_a_repeat_that_old_pythons_match_wrongly():
    assert find_branching_repeats(r"x(?:ab?c)*+") == ["MAX_REPEAT"]
    assert find_branching_repeats(r"(?:y|(?=x(?:,\d{3})++))") == ["MAX_REPEAT"]
    assert find_branching_repeats(r"(?:(?!ab).)*+") == ["ASSERT_NOT"]
    assert find_branching_repeats(r"(?>(?:ab|c){2,}+)") == ["BRANCH"]
    assert find_branching_repeats(r"(a)?+") == ["SUBPATTERN"]
    assert find_branching_repeats(r"[ab]*+(?::\d\d)*+(?>(?:ab?c)*)(?:ab?c)*") == []


def test_no_pattern_needs_a_repeat_that_old_pythons_match_wrongly():
    assert [(use, parts) for use in uses() if (parts := find_branching_repeats(use.pattern, use.flags))] == []


def test_every_pattern_needs_linear_time():
    different = {(use.pattern, use.flags, use.method): use for use in uses()}.values()  # modules share some patterns
    assert [(use, unit) for use in different if (unit := find_slow(use))] == []


@pytest.mark.long
def test_every_pattern_needs_linear_time_for_a_megabyte():
    assert [(use, unit) for use in uses() if (unit := find_slow(use, 1_000_000, 0.5, SEPARATORS))] == []


def test_linear_patterns_search_every_shape():
    lines = [cut_line(unit * (1_000_000 // len(unit))) for unit in UNITS]
    for pattern in linear_patterns():
        for line in lines:
            pattern.search(line)


def test_every_line_is_cut_before_it_is_searched():
    for unit in UNITS:
        assert len(clean_line(unit * (1_000_000 // len(unit)))[0]) <= MATCHED_CHARACTERS
