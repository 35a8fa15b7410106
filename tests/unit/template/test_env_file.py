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
    ],
)
def test_problem_has_its_position(text, position, message):
    with pytest.raises(SpecError) as raised:
        parse_env_file(text, file=".env")
    assert f"--> .env:{position}" in str(raised.value)
    assert message in str(raised.value)


def test_every_problem_is_reported_at_once():
    with pytest.raises(SpecError) as raised:
        parse_env_file("A=$(x)\nB c\nD=${Q}\n")
    assert len(raised.value.problems) == 3
