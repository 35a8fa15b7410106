"""An env file has the values that bash gives it, or it is refused; it never has other values."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfjob.base.errors import SpecError
from kfjob.source.env_file import parse_env_file

EXAMPLES = 300
NAMES = ["A", "B", "C", "LONG_1"]
NAME = st.sampled_from(NAMES)
PIECES = r"""x 1 /fsx/a-b_c.d:e = { } # ' " \ ~ :~/d * ! % , ; & é < > | ( ) {a,b} $ $$ \$ `date` $(date)"""
TEXT = st.sampled_from([*PIECES.split(), "$((1+1))", "$'n'", "[0]", "\\}", "\\'", "$1", "?", "a b", " # c", "\n", "\\\n"])
OPERATOR = st.sampled_from([":-", "-", ":=", "=", ":+", "+", ":?", "?", "%", "//", ":1", "^^", ""])


def join(parts: st.SearchStrategy[str], most: int = 4) -> st.SearchStrategy[str]:
    return st.lists(parts, max_size=most).map("".join)


def braces(word: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(NAME, OPERATOR, word).map(lambda parts: f"${{{''.join(parts)}}}") | NAME.map(lambda name: f"${name}")


def quotes(text: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return text.map(lambda text: f'"{text}"') | TEXT.map(lambda text: f"'{text}'")


PLAIN = st.sampled_from(["x", "1", "/a", ":", "b-c", "\\ ", "\\\\", "\\$A", "\\\n", "=", "#", "é"])
WORD = join(st.recursive(PLAIN | TEXT, lambda inner: braces(join(inner)) | quotes(join(inner)), max_leaves=6))
CLEAN = join(st.recursive(PLAIN, lambda inner: braces(join(inner, 2)) | quotes(join(inner, 2)), max_leaves=5))
VALUE = WORD | CLEAN | CLEAN
ASSIGNMENT = st.tuples(NAME, st.just("="), VALUE).map("".join)
STATEMENT = (
    st.lists(ASSIGNMENT, min_size=1, max_size=3).map(" ".join)
    | st.lists(ASSIGNMENT | NAME, min_size=1, max_size=3).map(lambda words: "export " + " ".join(words))
    | st.sampled_from(["# it's a comment", "", "set -a", "set +a", "set -euo pipefail", "  "])
)
FILE = st.lists(st.tuples(STATEMENT, st.sampled_from(["\n", "\n", "; ", " # c\n", "\\\n"])).map("".join), max_size=6).map(
    "".join
)


def source(text: str, folder: Path, initial: dict[str, str]) -> tuple[dict[str, str], str]:
    """Return the values that bash gives to the names, and what it reports."""
    file = folder / "env_vars"
    file.write_text(text)
    script = f"set -a; source {file}; status=$?; export {' '.join(NAMES)}; env -0; exit $status"
    bash = subprocess.run(
        ["bash", "-c", script], env={"PATH": "/usr/bin:/bin"} | initial, capture_output=True, text=True, check=False
    )
    pairs = (record.partition("=")[::2] for record in bash.stdout.split("\0"))
    return {name: value for name, value in pairs if name in NAMES}, bash.stderr


def test_values_are_those_of_bash_or_the_file_is_refused(tmp_path):
    with_values = 0

    @given(text=FILE, initial=st.dictionaries(NAME, st.sampled_from(["", "v", "a b"]), max_size=2))
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
    def check(text, initial):
        nonlocal with_values
        try:
            values = dict(parse_env_file(text, initial=initial).values)
        except SpecError:
            return
        expected, errors = source(text, tmp_path, initial)
        assert errors == ""
        assert initial | values == expected
        assert set(values) <= set(NAMES)
        with_values += bool(values)

    check()
    assert with_values >= EXAMPLES / 10


@pytest.mark.parametrize(
    "text",
    [
        'A="x y"\nB=${A:-d}${C:-e f}"${C-\'q r\'}"${C:+no}\nC=$A\\ z\n',
        'B="${A:=1 2}"\nexport C=${B:?needed}\nexport LONG_1=$C A B\n',
        "export A=1 \\\n  B=2\nexport C=$A\nLONG_1=a\\\nb'#'#c # d\n",
        'set -euo pipefail\nexport A=1; B="a\nb"\nC=\'$(x) `y`\'\nLONG_1="\\$A \\`x\\` \\a ${A}"\n',
    ],
)
def test_file_with_every_form_is_accepted(text, tmp_path):
    assert parse_env_file(text).values == source(text, tmp_path, {})[0]
