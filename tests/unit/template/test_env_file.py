"""Env files, compared with a shell."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from kfjob.base.errors import SpecError
from kfjob.source.env_file import parse_env_file


def read_env_file(text: str, **options: Any) -> dict[str, str]:
    """Return the values of an env file."""
    return dict(parse_env_file(text, **options).values)


def read_error(text: str, **options: Any) -> SpecError:
    with pytest.raises(SpecError) as raised:
        read_env_file(text, **options)
    return raised.value


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
    values = read_env_file(REFERENCE_FLOW)
    file = tmp_path / "env"
    file.write_text(REFERENCE_FLOW)
    names = list(values)
    script = ";".join(f"printf '%s\\0' \"${name}\"" for name in names)
    shell = subprocess.run(["/bin/sh", "-c", f". {file}; {script}"], env={}, capture_output=True, text=True, check=True)
    assert values == dict(zip(names, shell.stdout.split("\0"), strict=False))
    assert values["IMAGE_URI"] == "111122223333.dkr.ecr.eu-west-1.amazonaws.com/fsdp:pytorch2.2"


@pytest.mark.parametrize("text", ['"--rank=\\$RANK ${A} \\${X}"', "'--rank=$RANK 1 ${X}'", "\"--rank='$RANK' 1\""])
def test_reference_for_the_pod_needs_quotes_or_a_backslash(text):
    if "\\" in text or text.startswith("'"):
        assert read_env_file(f"A=1\nCMD={text}\n")["CMD"] == "--rank=$RANK 1 ${X}"
    else:
        with pytest.raises(SpecError, match=r"`\$RANK` has no value"):
            read_env_file(f"A=1\nCMD={text}\n")


def test_values_from_elsewhere_are_known_and_an_empty_value_is_a_value():
    text = "A=${A:-1}\nB=$C\nC=2\nD=${EMPTY}x\nexport C E\n"
    assert read_env_file(text, initial={"A": "9", "C": "c", "E": "e", "EMPTY": ""}) == {"A": "9", "B": "c", "C": "2", "D": "x"}
    assert read_env_file("E=\nA=${E}\nB=$E\n") == {"E": "", "A": "", "B": ""}


@pytest.mark.parametrize(
    "line",
    ["B=$A", "B=${A:?x}", "B=${A:+x}", "B=${C:-${A}}", 'B="x${A}"', "C=${A:=2}", "export A", "B=1 C=${C:-$A}", "export C=$A"],
)
def test_used_names_are_those_of_all_references(line):
    assert parse_env_file(f"{line}\n", initial={"A": "1", "C": "c"}).used - {"C"} == {"A"}
    assert parse_env_file("A=1\nB='$A'\nC=\\$A\n").used == frozenset()


def test_output_of_env_0_is_read():
    text = "A=a b\0LINES=1\n2\r\n\0HOME=/root\0RANK=3\0BASH_FUNC_f%%=() {}\0E=\0Q='x'$y\0"
    values = {"A": "a b", "LINES": "1\n2\r\n", "E": "", "Q": "'x'$y"}
    assert read_env_file(text) == values
    assert read_env_file(text, only=["RANK", "A"]) == values | {"RANK": "3"}


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("A=1\nB=$(aws configure get region)\n", "2:3", "an env file cannot run the command `$(aws configure get region)`"),
        ('A="`date`"', "1:4", "an env file cannot run the command `date`"),
        ("A=$(a \"$(b ')')\" \\\n  || c)\nB=1\n", "1:3", "an env file cannot run the command"),
        ("A=one two\n", "1:7", "unexpected text after the value"),
        ("A='open\n", "1:3", "a quote is not closed"),
        ("A=$(x\n", "1:3", "`$(` has no end"),
        ("A=${B:-x\n", "1:3", "`${` has no closing brace"),
        ("A=${LATER}\nLATER=1\n", "1:3", "`${LATER}` has no value"),
        ("export A=1 B=$A\n", "1:14", "`$A` has no value"),
        ('A="${B:?set B, please}"\n', "1:4", "`B` has no value: set B, please"),
        ("A=$((1+1))\n", "1:3", "only a shell can compute the arithmetic `$((1+1))`"),
        ("A=1\nB=${A:1}\n", "2:3", "only a shell can compute `${A:1}`"),
        ("A=$1\n", "1:3", "only a shell can compute `$1`"),
        ("A=$'x'\n", "1:3", "only a shell can compute `$'x'`"),
        ("A=~/data\n", "1:3", "only a shell can compute `~`"),
        ("A=x:~/data\n", "1:5", "only a shell can compute `~`"),
        ("A=$HOME/x\n", "1:3", "only a shell knows the value of `HOME`"),
        ("UID=5\n", "1:1", "a shell computes the value of `UID` itself"),
        ("export A={1,2}\n", "1:10", "only a shell can compute the braces"),
        ("A=https://x/?a=1&b=2\n", "1:17", "`&` has a meaning for a shell"),
        ("A=1 && B=2\n", "1:5", "`&&` has a meaning for a shell"),
        ("A+=b\n", "1:1", "not `NAME=value`"),
        ("export A\n", "1:8", "`export A` has no value"),
        ("if true; then\nA=1\nfi\n", "1:1", "not `NAME=value`"),
        (". other.env\nA=$B\n", "1:1", "not `NAME=value`"),
        ("A = 1\nB=$A\n", "1:1", "the line has spaces around `=`"),
        ("export A = 1\nB=$A\n", "1:8", "the line has spaces around `=`"),
        ("A: 1\nB=$A\n", "1:1", "the line is `NAME: value`, not `NAME=value`"),
    ],
)
def test_problem_has_its_position_and_is_the_only_one(text, position, message):
    error = read_error(text, file=".env")
    assert f"--> .env:{position}" in str(error)
    assert message in str(error)
    assert len(error.problems) == 1


@pytest.mark.parametrize("text", ["A=$(x)\n", "A=`x`\n", "A=${A:1}\n", "A=~\n", "source x\nA=1\n", "A=$'x'\n"])
def test_hint_says_how_a_shell_computes_the_values(text):
    for export in ("", "export "):
        error = read_error(text.replace("A=", f"{export}A="), file="my env")
        assert "hint: let a shell compute it: `set -a; source './my env'; set +a; kfjob … --env`" in str(error)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("export X=1; Y=$(date)\n", "X Y"),
        ("readonly A=$(date)\n", "A"),
        ("for i in 1 2; do B=$(date); done\n", "B"),
        ("export A\nA=$(date)\nB=$A\n", "A B"),
        ("if true; then\nA=1\nelse\nB=1\nfi\n", "A"),
        ("read -r A B <<< '1 2'\n", "A B"),
        ("f() { A=1; }\nf\n", "A"),
    ],
)
@pytest.mark.parametrize("name", ["env", "my env", "-e"])
def test_command_of_the_hint_exports_every_name(text, names, name, tmp_path):
    error = read_error(text, file=name)
    hint = next(problem.hint for problem in error.problems if problem.hint and "set -a" in problem.hint)
    command = hint.partition("`")[2].partition("`")[0]
    assert command.endswith("kfjob … --env")
    (tmp_path / name).write_text(text)
    script = command.replace("kfjob … --env", "env -0")
    shell = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}
    )
    assert set(names.split()) <= {record.partition("=")[0] for record in shell.stdout.split("\0")}
    assert shell.stderr == ""


def test_line_that_no_shell_reads_has_no_command():
    error = read_error("A = 1\nB: 2\n", file="e")
    assert [problem.hint for problem in error.problems] == [f"write `{name}=…`, without spaces" for name in "AB"]


@pytest.mark.parametrize("before", ["", "A=\n"])
def test_name_that_the_same_export_assigns_needs_a_line_of_its_own(before):
    with pytest.raises(SpecError, match="assign `A` on a line of its own"):
        read_env_file(f"{before}export A=1 B=${{A:?needed}}\n")


def test_every_problem_is_reported_at_once_with_one_hint():
    error = read_error("A=$(x)\nB=$(y) C=$(z)\nD=${Q}\n", file="f")
    assert [problem.line for problem in error.problems] == [1, 2, 2, 3]
    assert str(error).count("let a shell compute it") == 1


def test_unknown_value_is_reported_where_it_is_assigned_only():
    error = read_error('A=$(x)\nB="$A/y${A:-z}"\nexport C=$B\n')
    assert len(error.problems) == 1


@pytest.mark.parametrize(
    "value",
    [
        '$("' * 3000,
        '`$("' * 3000,
        '$"' + '$("' * 3000,
        '${x#$("' * 3000,
        '"${A:-' * 3000,
    ],
)
def test_deep_nesting_is_an_error(value):
    with pytest.raises(SpecError, match="nested too deeply"):
        read_env_file(f"A={value}\n")


def test_some_nesting_of_commands_is_a_command():
    with pytest.raises(SpecError, match="cannot run the command"):
        read_env_file("A=" + '$("' * 40 + '")' * 40 + "\n")


@pytest.mark.parametrize("name", ["EPOCHS", "EPOCH_SIZE", "BASHFUL", "GROUPS_2"])
def test_name_like_one_of_the_shell_has_its_value(name):
    assert read_env_file(f"{name}=3\nA=${name}\n") == {name: "3", "A": "3"}


@pytest.mark.parametrize("line", ["ACCOUNT=$(aws sts)", "export ACCOUNT=$(aws sts) TAG=1", "ACCOUNT=2"])
def test_given_value_replaces_the_line_of_the_file(line):
    values = read_env_file(f"{line}\nIMAGE=$ACCOUNT/a\n", initial={"ACCOUNT": "1"}, fixed=["ACCOUNT"])
    assert values["IMAGE"] == "1/a"
    assert "ACCOUNT" not in values


@pytest.mark.parametrize(
    "text",
    [
        "HF_TOKEN=$'SECRET'\n",
        'HF_TOKEN="${X:-"SECRET"}"\n',
        "HF_TOKEN=$(echo SECRET)\n",
        "HF_TOKEN=`echo SECRET`\n",
        "HF_TOKEN=${X:?SECRET}\n",
        "export A=1 HF_TOKEN=${X:-$'SECRET'}\n",
        "export HF_TOKEN=${X:-${Y:?SECRET}} &\n",
        "PASSWORD=abc$SECRET\n",
        "PASSWORD='abc'$SECRET\n",
        "PASSWORD=<SECRET>\n",
        "export PASSWORD=abc SECRET\n",
        ': "${HF_TOKEN:=$(echo SECRET)}"\n',
        "HF_TOKEN+=${SECRET:1}\n",
        "PASSWORD=abc${SECRET%x}\n",
    ],
)
def test_error_does_not_quote_the_value_of_a_secret_name(text):
    error = read_error(text, file=".env")
    assert "SECRET" not in str(error)
    assert "--> .env:1:" in str(error)


@pytest.mark.parametrize("text", ["HF_TOKEN=$TOKEN\n", 'HF_TOKEN="x-${TOKEN}"\n'])
def test_error_names_the_reference_of_a_secret(text):
    with pytest.raises(SpecError, match=r"TOKEN}?` has no value"):
        read_env_file(text)


@pytest.mark.parametrize(
    ("lines", "title"),
    [
        (["A=xx", *["A=$A$A"] * 40], "a value of this line is longer than 1048576 characters"),
        (["A=xx", *["export A=${B:-$A$A}"] * 40], "a value of this line is longer than 1048576 characters"),
        (["A=xx", *["A=$A$A"] * 18, *(f"B{n}=x$A" for n in range(100))], "all values are longer than 16777216"),
    ],
)
def test_values_that_grow_are_an_error(lines, title):
    error = read_error("\n".join(lines), file=".env")
    assert title in str(error)
    assert error.problems[0].line in range(20, 55)
    assert len(error.problems) == 1
