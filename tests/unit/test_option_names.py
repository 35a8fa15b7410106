"""Every option that a message, a hint or a help text names in backticks exists in kfjob, or is another program's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kfjob.cli.commands import kfjob

ROOT = Path(__file__).parents[2] / "kfjob"
SPAN = re.compile(r"`(--[^`\n]*)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*+(?:[-_][a-z0-9]+)*+(?!\\)")
OTHER_PROGRAMS = {
    "torchrun": "--nproc-per-node --nnodes --rdzv-endpoint --standalone --tee --redirects",
    "accelerate": "--num_machines --num_processes --machine_rank --main_process_ip",
    "Hydra": "--config-path --config-name",
    "etcd": "--enable-v2",
    "the trainer": "--epochs",
    "a user": "--out",
}
"""Options of the programs that jobs run, which messages name too."""
FOREIGN = {option for options in OTHER_PROGRAMS.values() for option in options.split()}


def list_options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from list_options(inner, click.Context(inner, parent=context, info_name=name))


OWN = {*list_options(kfjob, click.Context(kfjob)), "--help"}


def own_arguments(tree: ast.Module) -> Iterator[str]:
    """Yield the options that a module defines with argparse."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            yield from (word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str))


def named_options(text: str) -> Iterator[str]:
    """Yield the options of the spans that begin with an option; the commands of other spans are another test's."""
    for span in SPAN.findall(text):
        yield from OPTION.findall(span)


def find_options(tree: ast.Module, *, with_docstrings: bool) -> Iterator[str]:
    """Yield the options that the strings of a module name; only the docstrings of commands are help texts."""
    nodes = list(ast.walk(tree))
    skipped = {id(value) for node in nodes if isinstance(node, ast.JoinedStr) for value in node.values}
    if not with_docstrings:
        skipped |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            words = (str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
            yield from named_options("".join(words))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield from named_options(node.value)


@pytest.fixture(scope="module")
def named() -> set[tuple[str, str]]:
    """Return the modules and the options that they name."""
    trees = {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}
    of_the_trainer = {option for tree in trees.values() for option in own_arguments(tree)}
    return {
        (str(path), option)
        for path, tree in trees.items()
        for option in find_options(tree, with_docstrings=path.parts[0] == "cli")
        if path.parts[0] != "trainer" or option not in of_the_trainer
    }


def test_the_options_exist(named: set[tuple[str, str]]):
    assert [f"kfjob/{module} names `{option}`" for module, option in sorted(named) if option not in OWN | FOREIGN] == []


def test_every_option_of_another_program_is_named(named: set[tuple[str, str]]):
    assert {option for _, option in named} >= FOREIGN


def test_options_of_messages_are_seen(named: set[tuple[str, str]]):
    assert len({option for _, option in named if option in OWN}) > 20
    tree = ast.parse('x = f"use `--python {a}` or `--kubeconfg`, not `x --y`"')
    assert [*find_options(tree, with_docstrings=False)] == ["--python", "--kubeconfg"]
