"""Names that a script sets itself stay in it: a value of the template does not take the place of the script's own value."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kfjob.source.template.fill import render

LINES = """
export A=1 B=2; echo $B
declare A=1 B=2; echo $B
typeset A=1 B=2; echo $B
readonly A=1 B=2; echo $B
A=1 B=2⏎echo $B
f() { local A="$1" B="$2"; echo $B; }
if B=$(cmd); then echo $B; fi
while B=$(cmd); do echo $B; done
if a; then b; elif B=1; then echo $B; fi
time B=1; echo $B
printf -v B x; echo $B
let B=3; echo $B
((B++)); echo $B
((C=B+1, B=C)); echo $B
for ((B=0; B<2; B++)); do echo $B; done
unset B; echo $B
B[0]=1; echo $B
B+=x; echo $B
exec {B}>/dev/null; echo $B
eval "B=1"; echo $B
read -r A B; echo $B
read -aB; echo $B
printf -vB x; echo $B
f() ( B=1; echo $B; )
while getopts ab: B; do echo $B; done
read -r A \\⏎  B; echo $B
mapfile -t B; echo $B
for B in 1; do echo $B; done
select B in 1; do echo $B; done
getopts x B; echo $B
env B=1 sh -c 'echo $B'
bash -c 'A=1; B=1; echo $B'
cat <<E⏎x⏎E⏎A=1 B=2⏎echo $B
sh <<'E'⏎A=1 B=2⏎echo $B⏎E
: ${B:=1}; echo $B
x="$(B=1; echo $B)"
x=`B=1; echo $B`
case a in a)B=1;; esac; echo $B
declare -n R=B; R=5; echo $B
export -n B; sh -c 'echo $B'
trap 'B=1' EXIT; echo $B
wait -n -p B; echo $B
{ B=1; echo $B; }
(B=1; echo $B)
true && B=1; echo $B
"""
LITERAL = [line.replace("⏎", "\n").replace("\\\\", "\\") for line in LINES.strip().splitlines()]


def render_script(script: str, **values: str) -> tuple[str, str]:
    """Return the script of a ConfigMap after the replacement, and the notices."""
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"run.sh": script}}
    rendered = render(yaml.safe_dump(document, width=10**6), values=values)
    return rendered.objects[0]["data"]["run.sh"], " ".join(rendered.notices)


@pytest.mark.parametrize("script", LITERAL)
def test_name_that_the_script_sets_stays_with_a_notice(script):
    result, notices = render_script(script, B="mine")
    assert result == script
    assert "`$B` (defined in the pod with another value than yours" in notices


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("export B=${B}", "export B=7"),
        ("echo $B; B=1", "echo 7; B=1"),
        ("local A=1 B=$B", "local A=1 B=7"),
        ("B=$(basename $B)", "B=$(basename 7)"),
        ('echo "B=$B"; run $B', 'echo "B=7"; run 7'),
        ("echo B=$B A=$A; run $B", "echo B=7 A=$A; run 7"),
        ("# B=1\nrun $B", "# B=1\nrun 7"),
        ("run --B=1 x.B=2 $B", "run --B=1 x.B=2 7"),
        ("export B; run $B", "export B; run 7"),
        ("((C = B + 1)); run $B", "((C = B + 1)); run 7"),
        ("if ((B == 4)); then run $B; fi", "if ((B == 4)); then run 7; fi"),
        ('if [ "$B" = B ]; then run $B; fi', 'if [ "7" = B ]; then run 7; fi'),
    ],
)
def test_name_is_replaced_where_the_script_has_not_set_it(script, result):
    assert render_script(script, B="7")[0] == result


@pytest.mark.parametrize(
    ("script", "notice"),
    [
        (". ./env.sh; run $B", "the script reads `./env.sh`, which may set it before"),
        ("set -a; . f\nrun $B", "the script reads `f`, which may set it before"),
        ('[ -f x ] && source "a b"\nrun $B', "the script reads `a b`, which may set it before"),
        ("eval $(cat f); run $B", "`eval` may set it before"),
        ("export $(cat f); run $B", "`export` may set it before"),
        ("while true; do run $B; B=1; done", "the script sets it later"),
        ("f() { run $B; }; B=1; f", "the script sets it later"),
    ],
)
def test_replaced_name_that_another_file_or_a_later_line_may_set_has_a_notice(script, notice):
    result, notices = render_script(script, B="7")
    assert "run 7" in result
    assert f"replaced `$B`, but {notice}" in notices


@pytest.mark.parametrize(
    "script",
    [
        "run $B; find . -name x; . f",
        "run $B; B=1",
        "while a; do b; done\nrun $B; B=1",
        "f() { a; }; run $B; B=1",
        "for i in 1 2; do for j in 3; do a; done; done; run $B; B=1",
    ],
)
def test_name_that_nothing_can_have_set_before_has_no_notice(script):
    assert render_script(script, B="7") == (script.replace("$B", "7"), "")


STATEMENTS = (
    *LITERAL,
    "echo ${A:-none} $B",
    "echo A=31 $A",
    "A=1 B=2",
    "((B=8, A=B+1))",
    "read -ra B <<< '9 10'",
    "if ! B=13; then :; fi",
    'eval "A=16 B=17"',
    "A=19 sh -c 'echo $A'",
    "x=$(B=21; echo $B); echo $x",
    "cat <<E\nA=22 $B\nE",
    "while read -r B; do echo $B; done <<< 24",
    "B=(26 27)",
    "for i in 1 2; do echo $B; B=29; done",
    "g() { echo $A; }; A=30; g",
    "B=$((A + 36))",
    "trap 'B=38' USR1; kill -USR1 $$",
    "IFS=, read -r A B <<< 39,40",
    "until B=41; do :; done",
    "A=\\\n42",
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=5))
def test_bash_prints_the_same_or_the_notice_has_the_name(statements):
    script = "\n".join(statements) + "\n"
    values = {"A": "a-mine", "B": "b-mine"}
    expected = run_bash(script, values)
    for name, value in values.items():
        others = {other: values[other] for other in values if other != name}
        result, notices = render_script(script, **{name: value})
        if run_bash(result, others) != expected:
            assert re.search(rf"\$\{{?{name}\b", notices)


def run_bash(script: str, values: dict[str, str]) -> str:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), **values}
    shell = subprocess.run(
        ["bash", "-c", script],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return shell.stdout
