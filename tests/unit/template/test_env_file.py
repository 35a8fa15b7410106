"""Env files, compared with a shell."""

from __future__ import annotations

import subprocess

import pytest

from kfjob.errors import SpecError
from kfjob.spec.env_file import parse_env_file

REFERENCE_FLOW = r"""
# the job
export AWS_REGION=eu-west-1   # where
ACCOUNT="111122223333"
REGISTRY=${ACCOUNT}.dkr.ecr.$AWS_REGION.amazonaws.com/
export IMAGE_URI="${REGISTRY}fsdp:${TAG:-pytorch2.2}"

export FI_PROVIDER=""
NUM_NODES=
  CMD="torchrun \"a b\" \$HOME a\\b"
SINGLE='a # "b" $(x) ${Y}'
MIXED=a'b c'"d e"f
LINES='one
two'
URL=https://x/#part
SPACE=a\ b
BACK='a\b\$c'
AGAIN="${BACK}"
set -a
ONE=1 TWO=2; THREE="$ONE$TWO" # three
set +a
export ONE FOUR=4 FIVE="5 and \
more"
CONT=a\
b
HASH=a#b
"""


def test_values_are_those_of_a_shell(tmp_path):
    values = parse_env_file(REFERENCE_FLOW)
    file = tmp_path / "env"
    file.write_text(REFERENCE_FLOW)
    names = list(values)
    script = ";".join(f"printf '%s\\0' \"${name}\"" for name in names)
    shell = subprocess.run(["/bin/sh", "-c", f". {file}; {script}"], env={}, capture_output=True, text=True, check=True)
    assert values == dict(zip(names, shell.stdout.split("\0"), strict=False))
    assert values["IMAGE_URI"] == "111122223333.dkr.ecr.eu-west-1.amazonaws.com/fsdp:pytorch2.2"


def test_run_time_references_are_kept():
    assert parse_env_file('CMD="train --rank=$RANK --x=$OTHER ${MASTER_ADDR}"\n') == {
        "CMD": "train --rank=$RANK --x=$OTHER ${MASTER_ADDR}"
    }


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("A=1\nB=$(aws configure get region)\n", "2:3", "an env file cannot run commands"),
        ('A="`date`"', "1:3", "an env file cannot run commands"),
        ("NAME value\n", "1:1", "not `NAME=value`"),
        ("A=one two\n", "1:6", "unexpected text after the value"),
        ("A='open\n", "1:3", "a quote is not closed"),
        ("A=${LATER}\nLATER=1\n", "1:3", "`${LATER}` has no value"),
        ("E=\nA=${E}\n", "2:3", "`${E}` has no value"),
        ("E=\nA=$E\n", "2:3", "`$E` has no value"),
        ("A=$((1+1))\n", "1:3", "an env file cannot run commands"),
        ("A=x$(y)\n", "1:4", "an env file cannot run commands"),
        ("A=1\nB=${A:1}\n", "2:3", "only a shell can compute `${A:1}`"),
        ('A=1\nB="x ${A:+y}"\n', "2:3", "only a shell can compute `${A:+y}`"),
        ("A=${#B}\n", "1:3", "only a shell can compute `${#B}`"),
        ("A=$1\n", "1:3", "only a shell can compute `$1`"),
        ("A=$$\n", "1:3", "only a shell can compute `$$`"),
        ("A=$'x'\n", "1:3", "only a shell can compute `$'…`"),
        ("A=~/data\n", "1:3", "only a shell can compute `~`"),
        ("A=(1 2)\n", "1:3", "`(` has a meaning for a shell"),
        ("A=https://x/?a=1&b=2\n", "1:17", "`&` has a meaning for a shell"),
        ("A=1 && B=2\n", "1:4", "unexpected text after the value"),
        ("export A\n", "1:8", "`export A` has no value in this file"),
        ("if true; then A=1; fi\n", "1:1", "not `NAME=value`"),
        (". other.env\n", "1:1", "not `NAME=value`"),
        ("export -p\n", "1:8", "not `NAME=value`"),
    ],
)
def test_problem_has_its_position(text, position, message):
    with pytest.raises(SpecError) as raised:
        parse_env_file(text, file=".env")
    assert f"--> .env:{position}" in str(raised.value)
    assert message in str(raised.value)


@pytest.mark.parametrize("text", ["A=$(x)\n", "A=`x`\n", "A=${A:1}\n", "A=~\n", "source x\n", "export A\n", "A=$'x'\n"])
def test_hint_says_how_a_shell_computes_the_values(text):
    with pytest.raises(SpecError) as raised:
        parse_env_file(text, file="my env")
    assert "hint: let a shell compute it: `set -a; source 'my env'; set +a; kfjob submit … --env`" in str(raised.value)


def test_every_problem_is_reported_at_once():
    with pytest.raises(SpecError) as raised:
        parse_env_file("A=$(x)\nB c\nD=${Q}\n")
    assert len(raised.value.problems) == 3
