"""Which words of `command` and `args` a shell of the pod reads, so that it replaces names there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kfjob.base.errors import SpecError
from kfjob.base.shells import find_scripts
from kfjob.source.template.fill import Rendered, render

SCRIPT = "LR=2; run $LR ${STEPS:-5}"


def make_pod(fields: dict[str, Any]) -> str:
    containers = [{"name": "a", "image": "a:1", **fields}]
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": containers}})


def render_words(fields: dict[str, Any], **values: str) -> tuple[list[str], Rendered]:
    """Return the rendered command and arguments, and what was rendered."""
    rendered = render(make_pod(fields), values=values)
    (container,) = rendered.objects[0]["spec"]["containers"]
    return [*container.get("command", ()), *container.get("args", ())], rendered


@pytest.mark.parametrize(
    "fields",
    [
        {"command": ["bash", "-c", SCRIPT]},
        {"command": ["bash"], "args": ["-c", SCRIPT]},
        {"args": ["-lc", SCRIPT]},
        {"args": ["-o", "pipefail", "-c", SCRIPT]},
        {"command": ["sh", "-c", 'exec "$@"', "sh"], "args": ["bash", "-c", SCRIPT]},
        {"command": ["su", "-", "user", "-c", SCRIPT]},
        {"command": ["${SHELL_PATH:-/bin/bash}", "-c", SCRIPT]},
    ],
)
def test_name_that_a_script_sets_stays_in_it(fields):
    words, rendered = render_words(fields, LR="9")
    assert SCRIPT in words
    assert "`$LR`" in " ".join(rendered.notices)


@pytest.mark.parametrize(
    "fields",
    [
        {"command": ["bash", "/code/run.sh", "${LR:-1e-3}"]},
        {"command": ["bash"], "args": ["/code/run.sh", "${LR:-1e-3}"]},
        {"command": ["bash", "-c", 'run "$@"', "name", "${LR:-1e-3}"]},
        {"args": ["bash", "-o", "pipefail", "run.sh", "-c", "${LR:-1e-3}"]},
    ],
)
def test_argument_that_no_shell_reads_gets_the_value_or_the_default(fields):
    assert render_words(fields)[0][-1] == "1e-3"
    assert render_words(fields, LR="2")[0][-1] == "2"
    text = make_pod(fields).replace("${LR:-1e-3}", "$LR")
    with pytest.raises(SpecError, match=r"`\$LR` has no value"):
        render(text, values={})


def test_option_of_the_entry_point_is_no_option_of_a_shell():
    assert render_words({"args": ["-config", "train.yaml", SCRIPT]}, LR="9")[0][-1] == "LR=2; run 9 5"


def test_name_of_torchrun_that_no_shell_reads_is_reported():
    words, rendered = render_words({"command": ["bash", "run.sh", "$RANK"]})
    assert words[-1] == "$RANK"
    assert "no shell reads it there, so the program gets this text" in rendered.notices[0]


@pytest.mark.parametrize(
    ("line", "scripts"),
    [
        ("bash -c X a b", {2}),
        ("bash run.sh -c X", set()),
        ("bash --rcfile f -c X", {4}),
        ("bash -O extglob +e -c X", {5}),
        ("bash -c", set()),
        ("bash -o -c", set()),
        ("bash -ce X", {2}),
        ("bash --login +o posix -c -- X", {6}),
        ("tini -g -- exec /usr/bin/bash -c X", {6}),
        ("env A=1 bash --norc -euo pipefail -c -- X name", {8}),
        ("python train.py -c X", set()),
        ("flock /tmp/l -c X", {3}),
        ("env -i -S X", {3}),
        ("sh -c X sh bash -c Y", {2, 6}),
    ],
)
def test_find_scripts(line, scripts):
    assert find_scripts(line.split()) == scripts


ALIASES = """apiVersion: v1
kind: Pod
metadata: {name: x}
spec:
  containers:
  - {name: a, image: a, command: [bash, -c, &text 'LR=1; run $LR ${OPT:-d}']}
  - {name: b, image: a, env: [{name: SCRIPT, value: *text}]}
  - &base {name: c, image: a, args: ['LR=1; run $LR']}
  - {<<: *base, name: d, command: [bash, -c]}
"""


def test_each_place_of_an_alias_has_its_own_rule():
    rendered = render(ALIASES, values={"LR": "9"})
    shell, plain, program, merged = rendered.objects[0]["spec"]["containers"]
    assert shell["command"][2] == "LR=1; run $LR ${OPT:-d}"
    assert plain["env"][0]["value"] == "LR=1; run 9 d"
    assert program["args"] == ["LR=1; run 9"]
    assert merged["args"] == ["LR=1; run $LR"]


def test_name_of_an_alias_is_reported_once():
    text = ALIASES.replace("run $LR", "run ${TOKEN}").replace("*text", "*text}, {name: B, value: *text")
    with pytest.raises(SpecError) as error:
        render(text, values={})
    assert [problem.detail for problem in error.value.problems] == ["also at 8:49"]
