"""The specs and code blocks of pages and examples are valid. test_hints.py checks commands, and `scripts/docs build` links."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from kfjob.source.env_file import parse_env_file
from kfjob.source.spec_text import load_spec

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "SECURITY.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
EXAMPLES = sorted(file for file in ROOT.glob("examples/**/*.yaml") if file.name != "accelerate.yaml")


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
    variables: dict[str, str] = {}
    for env_file in (*file.parent.glob("*.env"), *file.parent.glob(".env.template")):
        variables |= parse_env_file(env_file.read_text(encoding="utf-8")).values
    assert load_spec(text, variables=variables).spec.name
    assert re.match(r"# [A-Z].{30,}", text.splitlines()[0])


def blocks() -> list[tuple[Path, str, str]]:
    """Every code block of a page with a language: page, language, text."""
    fence = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
    return [(page, kind, dedent(text)) for page in PAGES for _, kind, text in fence.findall(page.read_text(encoding="utf-8"))]


def parse(kind: str, text: str) -> None:
    """Parse a block. Python code may await."""
    match kind:
        case "python":
            compile(text, "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
        case "yaml":
            list(yaml.safe_load_all(text))
        case "json":
            [json.loads(line) for line in text.splitlines()] if "}\n{" in text else json.loads(text)
        case "toml":
            tomllib.loads(text)
        case "sh":
            subprocess.run(["bash", "-n"], input=text, text=True, check=True, capture_output=True)
        case "text" | "dockerfile" | "diff":
            pass
        case _:
            raise ValueError(f"a block in `{kind}`: add its parser here")


def test_every_code_block_is_valid():
    found, problems = blocks(), []
    for page, kind, text in found:
        try:
            parse(kind, text)
        except (SyntaxError, ValueError, yaml.YAMLError, subprocess.CalledProcessError) as err:
            problems.append(f"{page.relative_to(ROOT)}: {kind}: {text[:60]!r}: {getattr(err, 'stderr', None) or err}")
    assert len(found) > 30
    assert problems == []


def test_the_readme_has_one_spec():
    assert [page for page, _ in specs()].count("README.md") == 1


@pytest.mark.parametrize("page", ["docs/guides/data.md", "docs/first-job.md"])
def test_general_pages_show_the_way_from_text_to_a_model(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "kfjob-tokenize" in text
    assert "kfjob-export" in text
