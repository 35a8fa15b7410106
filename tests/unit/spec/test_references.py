"""References to variables are found, and a brace without an end hides no other reference."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfjob.shell.variables import find_references
from kfjob.source.spec_text import load_spec

BACKTRACKING = re.compile(r"(?<![\\$])\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?::?-([^}\n]*))?\}|([A-Za-z_][A-Za-z0-9_]*))")
"""The plain pattern, whose time is quadratic."""


@given(
    st.lists(
        st.sampled_from(["$", "{", "}", ":-", "-", ":", "A", "b1", "\\", "\n", " ", "(", ")", "${A:-", "${A", "$B"]),
        max_size=14,
    )
)
def test_references_are_those_of_the_plain_pattern(parts):
    text = "".join(parts)
    groups = [(match.span(), match["braced"], match["default"], match["bare"]) for match in find_references(text)]
    plain = [match for match in BACKTRACKING.finditer(text) if not has_open_bracket(match[2] or "")]
    assert groups == [(match.span(), match[1], match[2], match[3]) for match in plain]


def has_open_bracket(default: str) -> bool:
    return default.count("(") > default.count(")") or re.search(r"(?<!\$)\{", default) is not None


@pytest.mark.parametrize(
    "text",
    ["${IP:-$(awk '{print $1}' hosts)}", "${A:-$(f ${B})}", "${A-{x}}", 'export IP=${IP:-$(ip | awk "{print $5}")} && run'],
)
def test_a_default_that_ends_inside_brackets_is_a_shells(text):
    names = {match["braced"] for match in find_references(text)}
    assert not names & {"IP", "A"}


def test_a_value_that_leaves_an_empty_text_gets_a_note():
    text = 'name: a\nimage: a:1\ncommand: "true"\nenv: {FI_PROVIDER: "${FI_PROVIDER}", A: "a${B}", C: "${B:-}"}\n'
    loaded = load_spec(text, variables={"FI_PROVIDER": "", "B": ""})
    assert [(note.title, note.path, note.line, note.severity) for note in loaded.warnings] == [
        ("`${FI_PROVIDER}`: the value is empty, and so is the whole text", "env.FI_PROVIDER", 4, "note")
    ]
    assert load_spec(text, variables={"FI_PROVIDER": "", "B": ""}, assignments=["env.FI_PROVIDER=efa"]).warnings == ()
