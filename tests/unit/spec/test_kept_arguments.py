"""A command from `--set` keeps the spec's `args`, which is said."""

from __future__ import annotations

import pytest

from kfjob.source.spec_text import load_spec

SPEC = """name: a
image: a:1
nodes: 2
command: [torchrun, old.py]
args: [--epochs=3]
"""


def list_notes(assignments, text=SPEC):
    return list(load_spec(text, file="job.yaml", assignments=assignments).warnings)


def test_arguments_that_follow_an_assigned_command_are_a_note():
    (note,) = list_notes(["command=torchrun new.py"])
    assert note.lines() == [
        "note: the words of `args` still follow the new command",
        "  --> job.yaml:5:7 (args)",
        "hint: `--set 'args=[]'` removes them",
    ]
    assert load_spec(SPEC, assignments=["command=torchrun new.py", "args=[]"]).spec.args in ([], ())


@pytest.mark.parametrize(
    ("assignments", "text"),
    [
        (["command=torchrun new.py", "args=[]"], SPEC),
        (["command=torchrun new.py", "args.0=x"], SPEC),
        (["command=torchrun new.py"], SPEC.replace("args: [--epochs=3]\n", "")),
        (["nodes=3"], SPEC),
    ],
)
def test_chosen_arguments_need_no_note(assignments, text):
    assert list_notes(assignments, text) == []
