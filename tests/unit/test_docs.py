"""What the pages for people show is what the commands take: lines of ours parse, the spec is valid, links lead on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from kfjob.cli.commands import COMMANDS, kfjob
from kfjob.source.spec_text import load_spec

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "SECURITY.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/**/*.yaml"))
MADE = {"commands.md", "spec.md", "lint.md", "diagnose.md"}  # from the code, and compared with it elsewhere
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def code(page: Path) -> Iterator[str]:
    """The lines of a page's code: in fences, or four spaces in."""
    fenced = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip()


def commands() -> list[tuple[str, str]]:
    """Every command line of ours, with lines that go on joined to the one before."""
    found = []
    for page in PAGES:
        if page.name in MADE:
            continue
        for line in "\n".join(code(page)).replace("\\\n", " ").splitlines():
            for part in re.split(r"[;|]|&&", re.sub(r"\$\(.*?\)", "X", line)):
                words = part.strip().removeprefix("kubectl ")
                if words.startswith("kfjob ") and not re.match(r"kfjob \w+ +[→·]", words):
                    found.append((page.name, words))
    return found


@pytest.mark.parametrize(("page", "line"), commands())
def test_the_command_line_is_one(page: str, line: str):
    words = [word for word in shlex.split(line, comments=True)[1:] if not word.startswith(("…", ">", "2>"))]
    name, *rest = words
    if name.startswith("-"):
        return
    assert name in COMMANDS, f"{page}: `{line}`"
    with click.Context(kfjob, info_name="kfjob", **kfjob.context_settings) as top:
        command = kfjob.get_command(top, name)
        assert command is not None
        try:
            command.make_context(name, list(rest), parent=top)
        except click.MissingParameter:  # a line that shows one option of several
            pass
        except click.UsageError as err:
            assert "does not exist" in err.format_message(), f"{page}: `{line}`: {err.format_message()}"  # noqa: PT017


def test_there_are_many_such_lines():
    assert len(commands()) > 20


def specs() -> list[tuple[str, str]]:
    """Every spec in a page, which begins with its name."""
    fence = re.compile(r"```yaml\n(name: .*?)```", re.DOTALL)
    return [(page.name, spec) for page in PAGES for spec in fence.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("page", "spec"), specs(), ids=lambda value: value.partition("\n")[0])
def test_the_specs_of_pages_are_valid(page: str, spec: str):
    assert load_spec(spec).spec.name


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_specs_of_the_examples_are_valid_and_say_what_they_show(file: Path):
    text = file.read_text(encoding="utf-8")
    assert load_spec(text).spec.name
    assert re.match(r"# [A-Z].{30,}", text.splitlines()[0])


def test_the_readme_has_one_spec():
    assert [page for page, _ in specs()].count("README.md") == 1


def test_every_link_leads_to_a_file():
    lost = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert lost == []


def test_the_readme_links_every_guide_in_125_lines():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in ROOT.glob("docs/guides/*.md") if f"(docs/guides/{page.name})" not in text] == []
    assert len(text.splitlines()) <= 125


@pytest.mark.parametrize("page", ["docs/guides/data.md", "docs/tutorial.md"])
def test_general_pages_show_the_way_from_text_to_a_model(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "kfjob-tokenize" in text
    assert "kfjob-export" in text


def test_every_command_has_its_module():
    assert all(import_module(module) for module, _ in COMMANDS.values())
