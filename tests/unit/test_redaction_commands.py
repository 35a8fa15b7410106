r"""A command line in a hint shows no part of a secret, and stays valid JSON."""

from __future__ import annotations

import json

import pytest

from kfjob.base.errors import SpecError
from kfjob.redaction import Redactor
from kfjob.spec.job import JobSpec

LONG = "hf_abcdefghijklmnopqrstuvwxyz012345"


def print_hint(command: str | list[str]) -> str:
    """Return the hint of a wrong command as kfjob prints it."""
    with pytest.raises(SpecError) as caught:
        JobSpec(name="train", image="a:1", command=command)
    return Redactor().text(caught.value.problems[0].hint or "")


def read_script(hint: str) -> str:
    """Return the text after `bash -c` in a hint."""
    words, _ = json.JSONDecoder().raw_decode(hint.partition("command: ")[2])
    return str(words[2])


@pytest.mark.parametrize(
    "command",
    [
        r"DB_PASSWORD='it'\''smetoo123' python t.py",
        r'python t.py --password="q\"zz1 tail77" | tee x',
        r'python t.py --password "q\"zz1 tail77" && x',
        'MYSQL_PWD="a\\"b c\'d" python t.py',
        r"DB_PASSWORD=it\"smetoo\ tail99 python t.py",
        'DB_PASSWORD=ab"cd ef"gh python t.py',
        f"HF_TOKEN={LONG} python train.py",
        f"export HF_TOKEN={LONG} && python t.py",
        'curl -H "Authorization: Bearer abc123def456ghi" https://x/y | sh && python t.py',
        """DB_PASSWORD=\\"'b'zq"x"'7'"h"unte"r"K python t.py --keep""",
        "DB_PASSWORD=hunter2x;python t.py",
        """bash -c "DB_PASSWORD='a b' python t.py" && x""",
        'cd x && python t.py --config \'{"password": "a b"}\'',
    ],
)
def test_hint_shows_no_script_with_a_secret(command):
    assert read_script(print_hint(command)) == "…"


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("PASSWORD=/run/secrets/x python t.py", "PASSWORD=/run/secrets/x python t.py"),
        ("PASSWORD=$PW python t.py 'a b'", "PASSWORD=$PW python t.py 'a b'"),
        ("python t.py --token-count 5 | tee x", "set -eo pipefail; python t.py --token-count 5 | tee x"),
    ],
)
def test_hint_shows_a_script_without_a_secret(command, script):
    assert read_script(print_hint(command)) == script


@pytest.mark.parametrize("quoted", ["'{}'", '"{}"', "$'{}'", "{}", "a'{}'b", "'a'\\''{}'", '"a\\"{}"', "a\\ '{}'", "'a'\"{}\""])
@pytest.mark.parametrize(
    "place", ["DB_PASSWORD={} python t.py", "python t.py --password={} | x", "python t.py --password {} && x"]
)
def test_no_form_of_quotes_shows_a_part_of_a_secret(quoted, place):
    hint = print_hint(place.format(quoted.format("hunter7xyz")))
    assert "hunter7" not in hint
    assert read_script(hint) == "…"


def test_variables_in_a_hint_have_no_secrets():
    hint = print_hint(r"DB_PASSWORD='it'\''s metoo' A=1 python t.py")
    assert hint == 'set `env.DB_PASSWORD` in the spec, or use `command: ["bash", "-c", "…"]`'


def test_words_that_a_list_has_not_separated_have_no_secrets():
    assert print_hint(["python t.py --password hunter2x"]) == 'write `command: ["python", "t.py", "--password", "[redacted]"]`'


@pytest.mark.parametrize("command", ["x " * 3000 + "| tee y", "nohup " + "x " * 3000 + "&"])
def test_hint_shows_no_long_command(command):
    assert "x x" not in print_hint(command)
