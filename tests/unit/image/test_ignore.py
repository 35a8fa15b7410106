from __future__ import annotations

import posixpath
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfjob.base.errors import UsageError
from kfjob.image.ignore import MAX_PATTERNS, parse_ignore
from kfjob.image.path_patterns import PathPatterns
from tests.unit.test_patterns import cpu_limit

# (lines, left out, kept): Docker's documentation and the tables of patternmatcher's tests, in our own selection
CASES = [
    ("", "", "a a/b"),
    ("# a\n\n  \n", "", "a #"),
    ("a", "a a/b a/b/c", "b ab b/a"),
    ("/a", "a a/b", "b/a"),
    ("a/", "a a/b", "b/a"),
    ("./a/../b", "b b/c", "a"),
    ("*/a", "b/a b/a/c", "a c/b/a"),
    ("*/*/a", "c/b/a", "a b/a"),
    ("a?", "ab a1", "a abc"),
    ("*.py", "a.py", "b/a.py a.pyc"),
    ("**/*.py", "a.py b/a.py c/b/a.py", "a.pyc"),
    ("**", "a a/b", ""),
    ("**/", "a a/b", ""),
    ("**/a", "a b/a b/a/c", "ba b/ab"),
    ("**a", "a ba c/ba", "ab"),
    ("a/**", "a/b a/b/c", "a b"),
    ("a/**/b", "a/b a/c/b a/c/d/b", "a ab"),
    ("**/a/**", "a/b c/a/b", "a c/a"),
    ("a**b", "ab ac/b", "a b"),
    ("[a-c]x", "ax bx", "dx x"),
    ("[^a]x", "bx", "ax"),
    ("a.b", "a.b", "axb"),
    ("(a)+{1}|$", "(a)+{1}|$", "a"),
    ("\\*", "*", "a"),
    ("\\#a", "#a", "a"),
    ("*\n!a", "b", "a a/b"),
    ("!a\n*", "a b", ""),
    ("a\n!a/b\na/b/c", "a a/x a/b/c", "a/b a/b/d"),
    ("*.md\n!README*.md\nREADME-secret.md", "a.md README-secret.md", "README.md README-a.md"),
    ("**/x\n!k/x", "x a/x", "k/x k/x/y"),
    ("ä ö", "ä\u00a0ö".replace("\u00a0", " "), ""),
    ("\ufeffa", "a", "b"),
]


@pytest.mark.parametrize(("text", "left_out", "kept"), CASES)
def test_patterns_match_as_in_docker(text, left_out, kept):
    ignore = parse_ignore(text)
    whole = [left_out] if text == "ä ö" else left_out.split()
    assert [path for path in whole if not ignore.excludes(path)] == []
    assert [path for path in kept.split() if ignore.excludes(path)] == []


def test_excluded_folder_may_include_again():
    assert not parse_ignore("a\nb").may_include_again("a")
    assert parse_ignore("*\n!a/b/c").may_include_again("a")
    assert not parse_ignore("*\n!a/b/c").may_include_again("b")
    assert not parse_ignore("*\n!a/b/c").may_include_again("a/bb")
    assert parse_ignore("*\n!**/*.py").may_include_again("anything")


@pytest.mark.parametrize(("text", "line"), [("a\n!\nb", 2), ("[a", 1), ("a\n\n[z-a]", 3)])
def test_invalid_pattern_is_named(text, line):
    with pytest.raises(UsageError) as caught:
        parse_ignore(text, file="here/.dockerignore")
    assert caught.value.location == f"here/.dockerignore:{line}"


@given(st.text(alphabet="ab/*?!#.[]\\ \n", max_size=20), st.from_regex(r"[ab](/[ab.]){0,3}", fullmatch=True))
def test_any_text_is_parsed_or_refused(text, path):
    try:
        ignore = parse_ignore(text)
    except UsageError:
        return
    parent = path.rpartition("/")[0]
    if parent and ignore.excludes(parent) and not ignore.may_include_again(parent):
        assert ignore.excludes(path)


def translate(pattern: str) -> str:
    """Return the regular expression of Docker's patternmatcher for a pattern, as the reference."""
    tokens = re.findall(r"\*\*/(?=.)|\*\*|\*|\?|\\.|\[[^]]+\]|.", pattern, re.DOTALL)
    fixed = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(
        fixed[token] if token in fixed else token if token[0] == "[" and token[1:] else re.escape(token.removeprefix("\\"))
        for token in tokens
    )


@given(
    st.lists(st.sampled_from(["a", "b", ".", "*", "?", "/", "**", "**/", "[ab]", "[^a]", "\\*"]), min_size=1, max_size=8),
    st.from_regex(r"[ab.*](/?[ab.*]){0,7}", fullmatch=True),
)
def test_match_agrees_with_the_regular_expression_of_docker(tokens, path):
    pattern = posixpath.normpath("".join(tokens)).lstrip("/") or "."
    regex = re.compile(translate(pattern), re.DOTALL)
    parts = path.split("/")
    prefixes = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    assert PathPatterns([pattern]).match(path) == [any(regex.fullmatch(prefix) for prefix in prefixes)]


@pytest.mark.parametrize("pattern", ["a*" * 40 + "b", "**/" * 40 + "b", "**/*a*a*a*a*a*a*a*a*b", "?*" * 40 + "/b"])
def test_hostile_pattern_needs_linear_time(pattern):
    with cpu_limit(1.0):
        assert not parse_ignore(pattern).excludes("/".join(["a" * 200] * 20))


@pytest.mark.parametrize("text", ["!**/a*\n" * (MAX_PATTERNS + 1), "?" * 100_000, "[" * 100_000])
def test_too_many_or_too_long_patterns_are_one_short_error(text: str):
    with pytest.raises(UsageError) as caught:
        parse_ignore(text)
    assert len(str(caught.value)) < 400
