"""Every kfjob command that a hint, a docstring, a page, an example or a manifest names exists, with its options.

So does every option that a message, a hint or a help text names in backticks, or it is another program's.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kfjob.cli.commands import kfjob
from tests.golden.command_tree import contexts

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
COMMENTED = [ROOT / "Dockerfile", *(path for name in ("examples", "manifests") for path in ROOT.glob(f"{name}/**/*"))]
MODULES = [*ROOT.glob("kfjob/**/*.py")]
QUOTED = re.compile(r"`((?:[^`\n]|\n(?!\s*\n))+)`")  # within a paragraph
COMMAND = re.compile(r"(?:^|[;|&]\s*)(?:kubectl )?(kfjob [^;|&>]*)")
SUBSTITUTION = re.compile(r"\$\(([^)]*)\)")
PLACEHOLDER = re.compile(r"…|\.\.\.|[A-Z{<].*")


def shell_commands(text: str) -> Iterator[str]:
    """Yield the commands of shell text, those in `$(…)` too."""
    for part in (SUBSTITUTION.sub("X", text), *SUBSTITUTION.findall(text)):
        yield from COMMAND.findall(part)


def quoted_commands(text: str) -> Iterator[str]:
    """Yield the commands in backticks."""
    for span in QUOTED.findall(text):
        yield from shell_commands(" ".join(span.split()))


def page_commands(text: str) -> Iterator[str]:
    """Yield the commands in the code blocks of a page, and those in backticks."""
    in_block, prose = False, []
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            in_block = not in_block
        elif in_block or line.startswith("    "):
            yield from line_commands(line)
        else:
            prose.append(line)
    yield from quoted_commands("\n".join(prose))


def line_commands(line: str) -> Iterator[str]:
    """Yield the commands of one line of a shell; what follows two spaces explains it, unless it is an option."""
    yield from shell_commands(re.split(r" {2,}(?!-)|\s[→·#]", line.strip().removeprefix("$ "))[0])


def comment_commands(text: str) -> Iterator[str]:
    """Yield the commands in the comments of an example or a manifest."""
    comments = [line.partition("#")[2] for line in text.splitlines() if "#" in line]
    for comment in comments:
        yield from line_commands(comment)
    yield from quoted_commands("\n".join(comments))


def list_texts(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield the strings of a module, with X for what an f-string computes, and whether each is a docstring."""
    nodes = list(ast.walk(tree))
    pieces = {id(value) for node in nodes if isinstance(node, ast.JoinedStr) for value in node.values}
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(value.value) if isinstance(value, ast.Constant) else "X" for value in node.values), False
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces:
            yield node.value, id(node) in docstrings


def module_commands(text: str) -> Iterator[str]:
    """Yield the commands in the strings and docstrings of a module."""
    for words, _ in list_texts(ast.parse(text)):
        yield from quoted_commands(words)
        for line in words.splitlines():
            if (name := re.match(r"\s*kfjob ([a-z-]+)( |$)", line)) and name[1] in kfjob.list_commands(click.Context(kfjob)):
                yield from line_commands(line)


SOURCES = [(PAGES, page_commands), (COMMENTED, comment_commands), (MODULES, module_commands)]


@pytest.fixture(scope="module")
def commands() -> set[tuple[str, str]]:
    """Return the files and the command lines that they name."""
    return {
        (str(path.relative_to(ROOT)), command.strip(" .,:"))
        for paths, find in SOURCES
        for path in paths
        if path.is_file()
        for command in find(path.read_text(encoding="utf-8"))
    }


def problem(line: str) -> str:
    """Return what is wrong with a command line; empty if click takes it. Placeholders stand for any value."""
    _, *words = shlex.split(line)
    if words[0] in ("…", "..."):
        words[0] = "COMMAND"
    words = [word for word in words if word not in ("…", "...")]
    command: click.Command = kfjob
    context = click.Context(kfjob, info_name="kfjob", **kfjob.context_settings)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        if PLACEHOLDER.fullmatch(name):
            return ""
        inner = command.get_command(context, name)
        if inner is None:
            return f"there is no command `{name}`"
        command = inner
        context = click.Context(inner, info_name=name, parent=context, **inner.context_settings)
    try:
        values, surplus, _ = command.make_parser(context).parse_args(list(words))
    except click.BadOptionUsage as err:
        is_mention = words[-1].startswith("-")  # an option that is only named has no value
        return "" if is_mention else err.format_message()
    except click.UsageError as err:
        return err.format_message()
    if surplus and not isinstance(command, click.Group):
        return f"`{surplus[0]}` is one argument too many"
    choices = {option.name: option.type.choices for option in command.params if isinstance(option.type, click.Choice)}
    wrong = [value for name, value in values.items() if name in choices and value not in (None, *choices[name])]
    return f"`{wrong[0]}` is not a choice" if wrong and not PLACEHOLDER.fullmatch(str(wrong[0])) else ""


def test_the_commands_exist_with_their_options(commands: set[tuple[str, str]]):
    assert [f"{source}: `{line}`: {wrong}" for source, line in sorted(commands) if (wrong := problem(line))] == []


def test_commands_of_every_kind_of_source_are_seen(commands: set[tuple[str, str]]):
    sources = [source for source, _ in commands]
    assert len([source for source in sources if source.endswith(".md")]) > 60
    assert len([source for source in sources if source.endswith(".py")]) > 80
    assert len([source for source in sources if source.startswith(("examples/", "manifests/"))]) > 5


@pytest.mark.parametrize(
    "line",
    [
        "kfjob import nothing",
        "kfjob logs JOB other",
        "kfjob submit --dry-run=maybe",
        "kfjob export accelerate --fast job.yaml",
    ],
)
def test_wrong_commands_are_recognised(line: str):
    assert problem(line) != ""


@pytest.mark.parametrize("line", ["kfjob …", "kfjob --help", "kfjob logs --pod", "kfjob import torchrun COMMAND --fast"])
def test_mentions_and_placeholders_are_no_problem(line: str):
    assert problem(line) == ""


@pytest.mark.parametrize(
    ("find", "text", "commands"),
    [
        (page_commands, "`kfjob master\nA`.\n\n```sh\nkfjob stop A   # stop\n```\n", ["kfjob stop A", "kfjob master A"]),
        (page_commands, "    kubectl logs -f $(kfjob master JOB -o name)\n", ["kfjob master JOB -o name"]),
        (comment_commands, "# kfjob submit a.yaml --follow\nname: a\n", ["kfjob submit a.yaml --follow"]),
        (page_commands, "`kfjob stop\n\nJOB`", []),
        (module_commands, 'x = f"`kfjob logs {job} --tail 5` shows it"', ["kfjob logs X --tail 5"]),
        (module_commands, '"""kfjob and torch."""\ny = f"kfjob stop {a}"', ["kfjob stop X"]),
    ],
)  # fmt: skip
def test_commands_are_found(find, text, commands):
    assert list(find(text)) == commands


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
OWN = {word for context in contexts() for option in context.command.params for word in (*option.opts, *option.secondary_opts)}


def own_arguments(tree: ast.Module) -> Iterator[str]:
    """Yield the options that a module defines with argparse."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            yield from (word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str))


def find_options(tree: ast.Module, *, with_docstrings: bool) -> Iterator[str]:
    """Yield the options of the spans that begin with one; only the docstrings of commands are help texts."""
    for text, is_docstring in list_texts(tree):
        if with_docstrings or not is_docstring:
            for span in SPAN.findall(text):
                yield from OPTION.findall(span)


@pytest.fixture(scope="module")
def named() -> set[tuple[str, str]]:
    """Return the modules and the options that they name."""
    trees = {path.relative_to(ROOT / "kfjob"): ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
    of_the_trainer = {option for tree in trees.values() for option in own_arguments(tree)}
    return {
        (str(path), option)
        for path, tree in trees.items()
        for option in find_options(tree, with_docstrings=path.parts[0] == "cli")
        if path.parts[0] != "trainer" or option not in of_the_trainer
    }


def test_the_options_exist(named: set[tuple[str, str]]):
    assert [
        f"kfjob/{module} names `{option}`" for module, option in sorted(named) if option not in OWN | FOREIGN | {"--help"}
    ] == []


def test_every_option_of_another_program_is_named(named: set[tuple[str, str]]):
    assert {option for _, option in named} >= FOREIGN


def test_options_of_messages_are_seen(named: set[tuple[str, str]]):
    assert len({option for _, option in named if option in OWN}) > 20
    tree = ast.parse('x = f"use `--python {a}` or `--kubeconfg`, not `x --y`"')
    assert [*find_options(tree, with_docstrings=False)] == ["--python", "--kubeconfg"]
