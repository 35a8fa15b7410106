"""The programs that shell scripts and Python programs call by name, from their syntax trees.

Names in variables and function arguments are not visible here; the long test on a fresh machine covers them.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SHFMT = Path(sys.executable).with_name("shfmt")
NAME = re.compile(r"[a-z][a-z0-9.+_-]*")
SHELLS = {"bash", "sh"}
OPTION_COMMAND = re.compile(r"-[a-z]*c")  # bash -c, bash -euc
RUN = {"subprocess": {"run", "Popen", "call", "check_call", "check_output"}, "shutil": {"which"}}


class Script:
    """The syntax tree of a bash script, from shfmt."""

    def __init__(self, text: str) -> None:
        process = subprocess.run([SHFMT, "-tojson"], input=text, capture_output=True, text=True, check=True)
        self._tree = json.loads(process.stdout)
        self._inner = [Script(text) for text in self._command_strings()]

    def functions(self) -> set[str]:
        """Return the functions that the script defines."""
        return {node["Name"]["Value"] for node in _nodes(self._tree, "FuncDecl")}

    def commands(self) -> set[str]:
        """Return the names of all commands, also in `bash -c '…'`, but not names from variables."""
        heads = {call[0] for call in self._calls()}
        return {head for head in heads if NAME.fullmatch(head)}.union(*(inner.commands() for inner in self._inner))

    def words_after(self, runners: set[str], functions: set[str]) -> set[str]:
        """Return the words that may be the command of a runner, such as `mount` in `nsenter --net mount`."""
        calls = (call for call in self._calls() if call[0] in runners)
        candidates = {word for call in calls for word in takewhile(lambda word: word not in functions - runners, call)}
        return {word for word in candidates if NAME.fullmatch(word)}.union(
            *(inner.words_after(runners, functions) for inner in self._inner)
        )

    def runners(self, known_runners: set[str]) -> set[str]:
        """Return the functions that run their arguments as a command, directly or through a known runner."""
        return {
            function["Name"]["Value"]
            for function in _nodes(self._tree, "FuncDecl")
            for call in _nodes(function, "CallExpr")
            if _runs_all_arguments(call.get("Args", []), known_runners)
        }

    def _calls(self) -> Iterator[list[str]]:
        """Yield the words of each command. Non-literal words and quoted arguments are empty strings."""
        for call in _nodes(self._tree, "CallExpr"):
            if words := call.get("Args"):
                head = next(filter(None, (_literal(words[0], kind) for kind in ("Lit", "SglQuoted", "DblQuoted"))), "")
                yield [head, *(_literal(word, "Lit") for word in words[1:])]

    def _command_strings(self) -> Iterator[str]:
        for call in _nodes(self._tree, "CallExpr"):
            words = call.get("Args", [])
            for shell, option, text in zip(words, words[1:], words[2:], strict=False):
                if _literal(shell, "Lit") in SHELLS and OPTION_COMMAND.fullmatch(_literal(option, "Lit")):
                    yield _literal(text, "SglQuoted")


@cache
def packaged(*groups: str) -> dict[str, str]:
    """Return the programs and files that scripts/packages installs for these groups, with their packages."""
    process = subprocess.run([ROOT / "scripts" / "packages", "list"], capture_output=True, text=True, check=True)
    rows = [line.split() for line in process.stdout.splitlines()]
    return {name: package for name, package, package_groups in rows if {*package_groups.split(",")} & {*groups}}


def builtins() -> set[str]:
    """Return bash's builtin commands."""
    return set(subprocess.run(["bash", "-c", "compgen -b"], capture_output=True, text=True, check=True).stdout.split())


def python_commands(program: str) -> set[str]:
    """Return the programs that a Python program passes to `subprocess` or `shutil.which`, directly or in a variable."""
    tree = ast.parse(program)
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(target, ast.Name) and node.value:
            values.setdefault(target.id, []).append(node.value)
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_runner(node.func) and node.args)
    return {name for call in calls for name in _heads(call.args[0], values)}


def _heads(argument: ast.expr, values: dict[str, list[ast.expr]]) -> Iterator[str]:
    """Yield the first word of an argument list; a variable yields those of all its values."""
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        yield argument.value
    elif isinstance(argument, ast.List | ast.Tuple) and argument.elts:
        yield from _heads(argument.elts[0], values)
    elif isinstance(argument, ast.IfExp):
        yield from _heads(argument.body, values)
        yield from _heads(argument.orelse, values)
    elif isinstance(argument, ast.Starred):
        yield from _heads(argument.value, values)
    elif isinstance(argument, ast.Name):
        for value in values.get(argument.id, []):
            yield from _heads(value, {name: expressions for name, expressions in values.items() if name != argument.id})


def _is_runner(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.attr in RUN.get(function.value.id, ())
    )


def _nodes(tree: Any, kind: str) -> Iterator[dict[str, Any]]:
    """Yield all nodes of one type in source order."""
    if isinstance(tree, dict):
        if tree.get("Type") == kind:
            yield tree
        for child in tree.values():
            yield from _nodes(child, kind)
    elif isinstance(tree, list):
        for child in tree:
            yield from _nodes(child, kind)


def _runs_all_arguments(words: list[dict[str, Any]], runners: set[str]) -> bool:
    """Return whether `"$@"` is the command: only runners and their options precede it."""
    for word in words:
        if [parameter["Param"]["Value"] for parameter in _nodes(word, "ParamExp")] == ["@"]:
            return True
        if _literal(word, "Lit") not in runners and (word is words[0] or NAME.fullmatch(_literal(word, "Lit"))):
            return False
    return False


def _literal(word: dict[str, Any], kind: str) -> str:
    """Return the text of a word with one part of this kind and no expansion, else an empty string."""
    parts = word["Parts"]
    if len(parts) != 1 or parts[0]["Type"] != kind:
        return ""
    return _literal(parts[0], "Lit") if kind == "DblQuoted" and parts[0].get("Parts") else str(parts[0].get("Value", ""))
