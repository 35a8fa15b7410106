"""Parse an env file, whose lines are assignments `NAME=value`. Pure.

The syntax is a shell's: `export`, quotes, comments, `;`, `set -a`, references to names of earlier lines and to names that have
a value elsewhere, and `${A:-default}`. No command is run. What only a shell can compute is an error. The output of `env -0`, in
which a NUL character ends each assignment, is read as well.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from types import MappingProxyType

from msgspec import Struct

from kfjob.base.errors import Problem, SpecError
from kfjob.base.shells import NAME, is_computed_by_shell, is_name, is_set_by_shell
from kfjob.redaction import is_secret_name
from kfjob.shell.variables import is_run_time
from kfjob.shell.words import Part, Reference, RefusedText, Text, WordError, WordParser

_NO_EFFECT = re.compile(
    r"set(?:[ \t]+[-+][aeuvx]+|[ \t]+[-+]o[ \t]+(?:allexport|errexit|nounset|pipefail)|[ \t]+[-+][aeuvx]*o[ \t]+pipefail)+"
    r"(?=[ \t]*(?:[;\n#]|\Z))"
)
"""Options of a shell that change no value; every name of an env file counts, with `set -a` or without."""
_EXPORT = re.compile(r"export(?=[ \t])")
_ASSIGNMENT = re.compile(rf"(?P<name>{NAME})=")
_NAME = re.compile(rf"(?P<name>{NAME})(?=[ \t;\n]|\Z)")
_SPACE = re.compile(r"(?:[ \t]|\\\n)+")
_COMMENT = re.compile(r"#[^\n]*")
_LINE = re.compile(r"(?:\\\n|[^\n])*\n?")
_END = re.compile(r"(?:[ \t]|\\\n)*(?:;(?!;)|(?:(?<![^\s;])#[^\n]*)?(?:\n|\Z))")
_COMPOUND = re.compile(r"(?:if|case|for|while|until|select|function|\{|\(|[A-Za-z_][\w-]*[ \t]*\(\))(?![\w=-])|[^\n]*<<")
"""A block of lines, or a here-document. Its lines cannot be read one by one."""
_OPERATOR = re.compile(r"&&|\|\||[;&|<>()]+")
_OTHER_FORM = re.compile(rf"(?:export[ \t]+)?(?P<name>{NAME})(?:[ \t]+(?P<equals>=)(?!=)|[ \t]*:(?=[ \t]))")
"""`A = 1` or `A: 1`, which no shell takes for an assignment."""
MAX_VALUE_CHARACTERS = 1024**2
"""Length of a value in an env file; lines such as `A=$A$A` double it."""
MAX_VALUES_CHARACTERS = 16 * 1024**2
"""Length of all texts that the lines of an env file compute."""


class EnvFile(Struct, frozen=True):
    """What an env file says."""

    values: Mapping[str, str]
    """The values by name; a later line overrides an earlier one."""
    used: frozenset[str] = frozenset()
    """The names whose values the lines need: in references, and after `export`."""


def parse_env_file(
    text: str,
    *,
    file: str | None = None,
    initial: Mapping[str, str] = MappingProxyType({}),
    fixed: Collection[str] = (),
    only: Collection[str] = (),
) -> EnvFile:
    """Return the values and the names in the lines. `initial` holds the names that have a value before.

    The names in `fixed` keep their value of `initial`: the text's own values of these names are not computed.

    The output of `env -0` gives the names of a process environment, as `select_variables` with `only`.

    Raises:
        SpecError: a line has another form, a quote is open, a name has no value, or only a shell can compute a value.
    """
    if "\0" in text:
        records = (record.partition("=") for record in text.split("\0"))
        return EnvFile(select_variables({name: value for name, equals, value in records if equals and is_name(name)}, only))
    return _Parser(text.removeprefix("\ufeff").replace("\r\n", "\n"), file, initial, fixed).parse()


def select_variables(environment: Mapping[str, str], only: Collection[str]) -> dict[str, str]:
    """Return the variables of a process environment, except those that a pod sets itself and that `only` lacks."""
    return {name: value for name, value in environment.items() if name in only or not is_run_time(name)}


_QUOTES_HINT = "put values that contain spaces in quotes"


class _TooLongError(WordError):
    """The values of a line are longer than any job needs."""


class _Parser:
    """Reads one text from start to end."""

    def __init__(self, text: str, file: str | None, initial: Mapping[str, str], fixed: Collection[str]) -> None:
        self._text = text
        self._file = file
        self._offset = 0
        self._initial = initial
        self._fixed = fixed
        self._values: dict[str, str] = {}
        self._used: set[str] = set()
        self._unknown: set[str] = set()
        """Names whose value is not known. They are an error where they are assigned, not where they are used."""
        self._start = 0
        """Where the statement begins."""
        self._length = 0
        """Characters of all texts that the lines have computed."""
        self._hides = False
        """Whether the text belongs to the value of a secret name, so that an error must not quote it."""
        self._has_command = False
        """A refused command may define any name."""
        self._problems: list[tuple[Problem, bool]] = []
        """Each with whether a shell helps."""

    def parse(self) -> EnvFile:
        while self._offset < len(self._text):
            if self._accept(_SPACE) or self._accept(_COMMENT) or self._accept(re.compile("\n")) or self._accept_no_effect():
                continue
            if match := self._accept(_OTHER_FORM):
                self._report_other_form(match)
                continue
            self._start = self._offset
            try:
                self._parse_statement()
            except _TooLongError as error:
                self._report(error.offset, error.title, hint="check the references of this line: do they repeat a value?")
                break
            except WordError as error:  # where the text goes on is unknown
                self._report(error.offset, error.title)
                break
        if self._problems:
            raise SpecError(self._add_hints())
        return EnvFile(self._values, frozenset(self._used))

    def _accept(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Move behind the pattern if it matches at the offset."""
        if match := pattern.match(self._text, self._offset):
            self._offset = match.end()
        return match

    def _accept_no_effect(self) -> bool:
        return self._accept(_NO_EFFECT) is not None and self._accept(_END) is not None

    def _parse_statement(self) -> None:
        """Read the assignments up to the end of the line or to a semicolon."""
        start = self._offset
        exports = self._accept(_EXPORT) is not None
        assigned: list[tuple[re.Match[str], tuple[Part, ...]]] = []
        while not ((exports or assigned) and self._accept(_END)):
            is_secret = bool(assigned) and is_secret_name(assigned[-1][0]["name"])
            if (exports or assigned) and self._report_unexpected():
                break
            if match := self._accept(_ASSIGNMENT):
                assigned.append((match, self._parse_word()))
                if not exports:
                    self._assign(*assigned[-1])
            elif exports and (name := self._accept(_NAME)):
                self._check_exported(name, hides=is_secret)
            elif assigned:
                self._report(self._offset, "unexpected text after the value", hint=_QUOTES_HINT)
                break
            else:
                return self._report_command(start)
        else:
            return self._assign_exported(assigned) if exports else None
        for match, word in assigned:
            if exports:
                self._evaluate_for(match["name"], word)
            self._unknown.add(match["name"])
        self._accept(_LINE)
        return None

    def _report_unexpected(self) -> bool:
        """Move to the next word. Return whether a character that only a shell knows is in its place, and report it."""
        has_space = self._accept(_SPACE)
        is_operator = not has_space or self._text[self._offset : self._offset + 1] in tuple(";&|<>()")
        if is_operator:
            self._report_operator(is_value=not has_space)
        return is_operator

    def _parse_word(self) -> tuple[Part, ...]:
        parser = WordParser(self._text, self._offset)
        word = parser.parse()
        self._offset = parser.offset
        self._used |= parser.names
        return word

    def _assign_exported(self, assigned: list[tuple[re.Match[str], tuple[Part, ...]]]) -> None:
        """Assign the values of one `export`, which computes all of them before it assigns the first."""
        assigned = [pair for pair in assigned if pair[0]["name"] not in self._fixed]
        names = {match["name"] for match, _ in assigned[:-1]}
        for match, word in assigned:
            if _has_brace_expansion(word):
                self._report(match.end(), "only a shell can compute the braces of this value: put it in quotes")
        values = [self._evaluate_for(match["name"], word, later=names) for match, word in assigned]
        for (match, _), value in zip(assigned, values, strict=True):
            self._store(match, value)

    def _assign(self, match: re.Match[str], word: tuple[Part, ...]) -> None:
        if match["name"] not in self._fixed:
            self._store(match, self._evaluate_for(match["name"], word))

    def _store(self, match: re.Match[str], value: str | None) -> None:
        name = match["name"]
        if is_computed_by_shell(name):
            self._report(match.start(), f"a shell computes the value of `{name}` itself")
        self._define(name, value)

    def _define(self, name: str, value: str | None) -> None:
        if value is None:
            self._unknown.add(name)
            self._values.pop(name, None)
        else:
            self._unknown.discard(name)
            self._values[name] = value

    def _check_exported(self, name: re.Match[str], *, hides: bool) -> None:
        self._used.add(name["name"])
        if not (self._find(name["name"]) is not None or name["name"] in self._unknown or self._has_command):
            if hides:  # it may be the rest of the secret
                self._report(name.start(), "`export` has a name without a value", hint=_QUOTES_HINT)
            else:
                self._report(name.start(), f"`export {name['name']}` has no value", hint=_define_hint(name["name"]))

    def _find(self, name: str) -> str | None:
        return self._values.get(name, self._initial.get(name))

    def _evaluate_for(self, name: str, word: tuple[Part, ...], later: frozenset[str] | set[str] = frozenset()) -> str | None:
        """Return the text of a word, a value of the name; errors do not quote the value of a secret name."""
        before = self._hides
        self._hides = before or is_secret_name(name)
        try:
            return self._evaluate(word, later)
        finally:
            self._hides = before

    def _check_length(self, *texts: str) -> str:
        """Return the texts as one.

        Raises:
            _TooLongError: it is too long, or all texts of the file are.
        """
        length = sum(map(len, texts))
        self._length += length
        if length > MAX_VALUE_CHARACTERS:
            raise _TooLongError(f"a value of this line is longer than {MAX_VALUE_CHARACTERS} characters", self._start)
        if self._length > MAX_VALUES_CHARACTERS:
            raise _TooLongError(f"all values are longer than {MAX_VALUES_CHARACTERS} characters together", self._start)
        return "".join(texts)

    def _evaluate(self, word: tuple[Part, ...], later: frozenset[str] | set[str] = frozenset()) -> str | None:
        """Return the text of a word; None if it has none, which is then reported. `later` are names that `export` assigns."""
        texts: list[str | None] = []
        for part in word:
            if isinstance(part, Text):
                texts.append(part.text)
            elif isinstance(part, RefusedText):
                self._report(part.offset, part.form if self._hides else part.title)
                texts.append(None)
            else:
                texts.append(self._resolve(part, later, is_whole=len(word) == 1))
        return None if None in texts else self._check_length(*(text or "" for text in texts))

    def _resolve(self, reference: Reference, later: frozenset[str] | set[str], *, is_whole: bool) -> str | None:
        name, operator = reference.name, reference.operator
        value = self._find(name)
        if name in self._unknown or (value is None and is_set_by_shell(name, in_terminal=True)):
            if name not in self._unknown:
                hint = "define it on an earlier line, or use `--env`"
                if not self._hides:
                    hint += f"; `\\{reference.source}` is the text itself"
                self._report(reference.offset, f"only a shell knows the value of `{name}`", hint=hint)
            return None
        is_set = bool(value) if operator.startswith(":") else value is not None
        if operator.endswith("+"):
            return self._evaluate_for(name, reference.word, later) if is_set else ""
        if not is_set and operator.endswith(("-", "=")):
            value = self._evaluate_for(name, reference.word, later)
            if operator.endswith("="):
                self._define(name, value)
        elif not is_set:
            value = None
            if self._hides and not (reference.source.startswith("${") or (is_whole and name.isupper())):
                self._unknown.add(name)  # the name may be a part of the secret
                title = "this reference to a name has no value"
                self._report(reference.offset, title, hint="put the value in single quotes if `$` belongs to it")
            else:
                self._report_missing(reference, is_later=name in later)
        return value

    def _report_missing(self, reference: Reference, *, is_later: bool) -> None:
        name = reference.name
        self._unknown.add(name)  # one error for each name
        if self._has_command:
            return
        message = self._evaluate(reference.word) if reference.operator and not self._hides else None
        title = f"`{name if reference.operator else reference.source}` has no value"
        hint = _define_hint(name)
        if is_later:
            hint = f"`export` computes all values of a line first: assign `{name}` on a line of its own"
        elif not reference.operator and not self._hides:
            hint += f"; `\\{reference.source}` is the text itself"
        self._report(reference.offset, f"{title}: {message}" if message else title, hint=hint)

    def _report_operator(self, *, is_value: bool) -> None:
        """Report a character that only a shell knows, behind a value or in place of one."""
        operator = _OPERATOR.match(self._text, self._offset)
        title = f"`{operator[0] if operator else self._text[self._offset]}` has a meaning for a shell"
        return self._report(self._offset, title, hint="put the value in quotes" if is_value else None)

    def _report_command(self, start: int) -> None:
        """Report a line that is no assignment, and skip it, with its block."""
        self._offset = start
        self._report(start, "the line is not `NAME=value`")
        self._has_command = True
        if _COMPOUND.match(self._text, start):
            self._offset = len(self._text)
        else:
            self._accept(_LINE)

    def _report_other_form(self, match: re.Match[str]) -> None:
        title = "the line has spaces around `=`" if match["equals"] else "the line is `NAME: value`, not `NAME=value`"
        self._report(match.start("name"), title, hint=f"write `{match['name']}=…`, without spaces")
        self._unknown.add(match["name"])
        self._accept(_LINE)

    def _report(self, offset: int, title: str, hint: str | None = None) -> None:
        """Add a problem; without a hint, a shell helps."""
        line = self._text.count("\n", 0, offset) + 1
        column = offset - self._text.rfind("\n", 0, offset)
        problem = Problem(title=title, file=self._file, line=line, column=column, hint=hint)
        self._problems.append((problem, hint is None))

    def _add_hints(self) -> list[Problem]:
        """Return the problems; the last one that needs a shell says which command computes all values."""
        last = max((index for index, (_, needs_shell) in enumerate(self._problems) if needs_shell), default=None)
        problems = [problem for problem, _ in self._problems]
        if last is not None:
            problem = problems[last]
            problems[last] = Problem(**{**vars(problem), "hint": self._shell_hint()})
        return problems

    def _shell_hint(self) -> str:
        """Return the command that lets a shell compute the values."""
        if self._file in (None, "-") or str(self._file).startswith("/dev/"):
            return "let a shell compute it, export the names, and use `--env` instead of `--env-file`"
        file = str(self._file) if "/" in str(self._file) else f"./{self._file}"  # `source env` reads the env of PATH
        return f"let a shell compute it: `set -a; source {shlex.quote(file)}; set +a; kfjob … --env`"


def _has_brace_expansion(word: tuple[Part, ...]) -> bool:
    plain = "".join("_" if not isinstance(part, Text) else "_" if part.is_quoted else part.text for part in word)
    inside = plain.partition("{")[2]
    return "," in inside or ".." in inside


def _define_hint(name: str) -> str:
    return f"define it on an earlier line, with `--var {name}=…`, or export it and use `--env`"
