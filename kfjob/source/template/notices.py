"""Write the notices about the references that stay in a template: each names the object, the container and the field. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from kfjob.base.errors import Problem
from kfjob.base.text import find_similar, join_names
from kfjob.objects.api_objects import describe_object, is_list
from kfjob.objects.containers import show_path
from kfjob.shell.variables import LEAVES_NOTHING, Definition, Reader, Resolution, Variables, is_run_time
from kfjob.validation.field_paths import Path

_SIMILAR = 0.8
"""How alike a name without a value and one with a value are, if the first may be a mistake; 1 is equal."""
_MAX_PLACES = 8
"""Fields that a notice names."""
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")

_Key = TypeVar("_Key")
_Member = TypeVar("_Member")


class Use(Struct, frozen=True, kw_only=True):
    """A reference in a scalar of a template, and what happens to it."""

    name: str
    text: str
    offset: int
    """Where the reference begins in the template."""
    scalar: int
    """The id of the scalar's node."""
    reader: Reader
    has_default: bool
    resolution: Resolution
    definition: Definition | None
    doubt: str = ""
    """Why a replaced name may have another value in its script."""
    makes_structure: bool = False
    """Whether the value would be more than one text of YAML if it were a part of the file."""
    leaves_nothing: bool = False
    """Whether the value is empty, and so is the whole text."""
    is_shell_form: bool = False
    """Whether only a shell computes it, as `${A:0:1}`."""


class Escape(Struct, frozen=True, kw_only=True):
    r"""A text `$$NAME`, `\$NAME` or `$$(`, which the pod's program gets with one `$`, or as it is."""

    text: str
    offset: int
    scalar: int
    name: str | None
    one_dollar: bool


class Notices:
    """Writes the notices of one template. `locate` returns an offset's line and column, `describe` the place of a scalar."""

    def __init__(
        self,
        variables: Variables,
        file: str | None,
        *,
        locate: Callable[[int], tuple[int, int]],
        describe: Callable[[int], str],
    ) -> None:
        """Take the variables of the template, and its name."""
        self._variables, self._file, self._locate, self._describe = variables, file, locate, describe

    def write(self, uses: Sequence[Use], escapes: Sequence[Escape]) -> Iterator[str]:
        """Yield a notice of all references that stay, one for each doubt and each name of `--keep`, and those of `$$NAME`."""
        left = [use for use in uses if use.resolution is Resolution.FOR_THE_POD]
        kept = [use for use in left if use.name in self._variables.keep]
        is_partial = self._variables.only is not None
        if unasked := [use for use in left if use not in kept and (use.is_shell_form or not is_partial)]:
            groups = _group(unasked, self._explain)
            parts = (f"{_list_texts(members)} ({reason})" for reason, members in groups.items())
            yield self._add_places(f"left for the pod: {'; '.join(parts)}", unasked)
        if structural := [use for use in uses if use.makes_structure]:
            reason = "a value never makes structure, as it can with envsubst, so the field gets all of it as one text"
            yield self._add_places(f"{_list_texts(structural)}: {reason}", structural)
        if empty := [use for use in uses if use.leaves_nothing]:
            yield self._add_places(f"{_list_texts(empty)}: {LEAVES_NOTHING}", empty)
        for doubt, members in _group([use for use in uses if use.doubt], lambda use: use.doubt).items():
            yield self._add_places(f"replaced {_list_texts(members)}, but {doubt}; `--keep` leaves a name to the pod", members)
        for text, members in _group(kept, lambda use: use.text).items():
            yield self._add_places(f"`{text}` stays in the text because of `--keep`: {_describe_readers(members)}", members)
        for explanation, alike in _group(escapes, _explain_escape).items():
            yield self._add_places(f"{_list_texts(alike)}: {explanation}", alike)

    def _explain(self, use: Use) -> str:
        """Return why a reference stays."""
        if use.is_shell_form:
            return "kfjob does not compute this form, so your value is not used"
        if use.name in self._variables.exported:
            return "set by torchrun, the operator or the shell; `--var` replaces it"
        if use.name in self._variables.values:
            return "defined in the pod with another value than yours; `--only` replaces it"
        if use.reader is Reader.KUBERNETES:
            return "no shell reads it there, so the program gets this text"
        return self._explain_origin(use)

    def _explain_origin(self, use: Use) -> str:
        """Return where a program in the pod has the value from."""
        if use.name in self._variables.unset and use.definition is None:
            return "nothing sets it without a Master; `--var` replaces it"
        if is_run_time(use.name):
            return "set by torchrun, the operator or the shell"
        if use.definition is not None:
            return "defined in the pod"
        if use.has_default:
            return "the shell takes the default"
        return f"no value{suggest(use.name, self._variables.values)}"

    def _add_places(self, title: str, members: Sequence[Use | Escape]) -> str:
        """Return the title with one line for each field; with several fields, each line has the field's references."""
        fields: dict[int, list[Use | Escape]] = {}
        for member in sorted(members, key=lambda member: member.offset):
            fields.setdefault(member.scalar, []).append(member)
        lines = [title]
        for scalar, references in [*fields.items()][:_MAX_PLACES]:
            line, column = self._locate(references[0].offset)
            place = Problem(title="", file=self._file, line=line, column=column, path=self._describe(scalar))
            lines.append(f"  --> {place.location()}{f': {_list_texts(references)}' if len(fields) > 1 else ''}")
        if len(fields) > _MAX_PLACES:
            lines.append(f"  and {len(fields) - _MAX_PLACES} more fields")
        return "\n".join(lines)


def _explain_escape(escape: Escape) -> str:
    if escape.name is None:
        return "the pod gets one `$`; GNU envsubst leaves both"
    result = "the pod gets one `$` and the name" if escape.one_dollar else "it stays as it is"
    return f"{result}; GNU envsubst writes `{escape.text[0]}` and the value"


def _group(members: Sequence[_Member], find_key: Callable[[_Member], _Key]) -> dict[_Key, list[_Member]]:
    groups: dict[_Key, list[_Member]] = {}
    for member in members:
        groups.setdefault(find_key(member), []).append(member)
    return groups


def suggest(name: str, names: Collection[str]) -> str:
    """Return the end of a message about a name without a value, if a similar one has a value."""
    similar = find_similar(name, names, cutoff=_SIMILAR)
    return f"; did you mean `${similar}`?" if similar else ""


def describe_place(document: Any, path: Path) -> str:
    """Return the object, the container and the field of a path in a document: "Pod `a`, container `b`, args[1]"."""
    item, start = document, 0
    while is_list(item) and len(path) > start + 1 and path[start] == "items":
        item, start = item["items"][path[start + 1]], start + 2
    parts = [describe_object(item)]
    value = owner = item
    for index in range(start, len(path)):
        try:
            value = value[path[index]]
        except (LookupError, TypeError):  # a merged mapping's field that the owner replaces by another
            break
        if index > start and path[index - 1] in _CONTAINERS and isinstance(value, dict):
            parts.append(f"container `{value.get('name')}`")
            owner, start = value, index + 1
    if field := show_path(owner, path[start:]):
        parts.append(field)
    return ", ".join(parts)


def _list_texts(members: Sequence[Use | Escape]) -> str:
    return join_names((f"`{text}`" for text in dict.fromkeys(member.text for member in members)), limit=12)


def _describe_readers(uses: Sequence[Use]) -> str:
    readers = {use.reader for use in uses}
    if readers == {Reader.SHELL}:
        return "the shell in the pod replaces it"
    return (
        "no shell reads it there, so the pod gets it as it is"
        if Reader.SHELL not in readers
        else "a shell reads some of its texts"
    )
