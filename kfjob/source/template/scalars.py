"""Replace the references in the scalars of a template, and collect all references and escapes for its messages. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, repeat

import yaml
from msgspec.structs import replace

from kfjob.base.shells import NAME
from kfjob.shell.assignments import NO_ASSIGNMENTS, Assignments, find_assignments
from kfjob.shell.variables import (
    Definition,
    Reader,
    Resolution,
    Variables,
    find_references,
    find_shell_forms,
    get_name,
    resolve,
)
from kfjob.source.manifest_yaml import PLAIN, STR, resolve_plain
from kfjob.source.template.marked_text import MarkedText
from kfjob.source.template.notices import Escape, Use
from kfjob.source.template.places import Place

_ESCAPE = re.compile(rf"[$\\]\$(?:\{{(?P<braced>{NAME})\}}|(?P<bare>{NAME})|(?<=\$\$)\()")
"""`$$NAME`, `$${NAME}`, the same after a backslash, or the beginning of `$$(command)`."""


_STRUCTURE = re.compile(r" #|: |:\Z|\n")
"""What ends a plain scalar of YAML, or makes a mapping of it."""
_FLOW_STRUCTURE = re.compile(r"[][{},]")


class Scalars:
    """Renders scalars one by one."""

    def __init__(self, source: MarkedText, variables: Variables) -> None:
        """Take the text that the scalars come from, and the values."""
        self._source, self._variables = source, variables
        self.uses: list[Use] = []
        self.escapes: list[Escape] = []
        self.empty: list[tuple[Use, str]] = []
        """The reference and the field of each text that is empty and must not be."""
        self.first_names: dict[int, str] = {}
        """By the id of a scalar whose text begins with the value of a name: the name."""

    def render(self, node: yaml.ScalarNode, place: Place) -> None:
        """Replace the references of a scalar by the values of their names."""
        text, offsets = self._source.restore(node.value), self._source.find_offsets(node.value)
        if not (offsets or "$" in text):
            node.value = text
            return
        assigned = find_assignments(text) if place.reader is Reader.SHELL else NO_ASSIGNMENTS
        references = list(find_references(text))
        ends = repeat(offsets[-1] if offsets else 0)  # an escape of YAML can make one more reference
        uses = [
            self._make_use(reference, node, place, assigned, offset)
            for reference, offset in zip(references, chain(offsets, ends), strict=False)
        ]
        unescape = place.reader is not Reader.KUBERNETES and not place.is_kubelet_text and self._variables.only is None
        node.value = self._variables.replace(text, resolutions=[use.resolution for use in uses], unescape=unescape)
        if not node.value and not any(use.has_default for use in uses):
            uses = [replace(use, leaves_nothing=True) for use in uses]
        self.uses += [*uses, *self._list_shell_forms(text, node, place, assigned)]
        self._add_escapes(text, node, place, unescape=unescape)
        if uses and place.reader is Reader.KUBERNETES and not node.value and not place.may_be_empty:
            self.empty.append((uses[0], place.field))
        if uses and references[0].start() == 0 and uses[0].resolution is Resolution.REPLACED:
            replacement = resolve(references[0], self._variables.values)
            if replacement and not replacement.is_default:
                self.first_names[id(node)] = uses[0].name
        if node.tag == PLAIN and (not node.value or isinstance(resolve_plain(node.value), str)):
            node.tag = STR  # also an empty value, and the key `<<`

    def render_name(self, marked: str) -> str:
        """Return the text of a scalar of `env` with its references replaced."""
        return self._variables.replace(self._source.restore(marked), reader=Reader.KUBERNETES)

    def _make_use(
        self, reference: re.Match[str], node: yaml.ScalarNode, place: Place, assigned: Assignments, offset: int
    ) -> Use:
        name = get_name(reference)
        definition = self._find_definition(name, reference.start(), place, assigned)
        resolution = self._variables.classify(reference, reader=place.reader, definition=definition)
        return Use(
            name=name,
            text=reference[0],
            offset=offset,
            scalar=id(node),
            reader=place.reader,
            has_default=bool(reference["dash"]),
            resolution=resolution,
            definition=definition,
            makes_structure=resolution is Resolution.REPLACED
            and node.tag == PLAIN
            and self._makes_structure(reference, is_in_flow=place.is_in_flow),
            doubt=assigned.find_doubt(name, reference.start()) if resolution is Resolution.REPLACED else "",
        )

    def _makes_structure(self, reference: re.Match[str], *, is_in_flow: bool) -> bool:
        """Return whether the value in a plain scalar would be structure if a program replaced it before YAML is read."""
        replacement = resolve(reference, self._variables.values)
        if replacement is None or replacement.is_default:  # a default is a part of the file
            return False
        text = replacement.text
        is_collection = reference.start() == 0 and text.startswith(("[", "{"))
        return is_collection or bool(_STRUCTURE.search(text) or (is_in_flow and _FLOW_STRUCTURE.search(text)))

    def _find_definition(self, name: str, start: int, place: Place, assigned: Assignments) -> Definition | None:
        """Return what the pod defines for a reference; text before the first assignment of a script comes from elsewhere."""
        end = assigned.ends.get(name)
        if end is not None and (name not in self._variables.values or start >= end):
            return Definition(value=None)
        if name in place.env.values:
            return Definition(value=place.env.values[name])
        is_open = place.env.is_open and place.reader is Reader.SHELL and name not in self._variables.values
        return Definition(value=None) if is_open else None

    def _list_shell_forms(self, text: str, node: yaml.ScalarNode, place: Place, assigned: Assignments) -> Iterator[Use]:
        """Yield the texts such as `${A:0:1}` whose name has a value that is not used, because kfjob does not compute them."""
        variables = self._variables
        offset = self._source.map.find_offset(node.start_mark.index)
        for match in find_shell_forms(text):
            offset = max(self._source.text.find(match[0], offset), offset)
            name = match["name"]
            is_given = name in variables.values and (variables.only is None or name in variables.only)
            if is_given and name not in variables.keep and not self._find_definition(name, match.start(), place, assigned):
                yield Use(
                    name=name,
                    text=match[0],
                    offset=offset,
                    scalar=id(node),
                    reader=place.reader,
                    has_default=False,
                    resolution=Resolution.FOR_THE_POD,
                    definition=None,
                    is_shell_form=True,
                )

    def _add_escapes(self, text: str, node: yaml.ScalarNode, place: Place, *, unescape: bool) -> None:
        """Add the texts that GNU envsubst, which knows no escape, would write in another way."""
        offset, only = self._source.map.find_offset(node.start_mark.index), self._variables.only
        for match in _ESCAPE.finditer(text):
            offset = max(self._source.text.find(match[0], offset), offset)
            name = match["braced"] or match["bare"]
            if unescape if name is None else only is None or name in only:
                one_dollar = match[0].startswith("$$") and (unescape or place.is_kubelet_text)
                self.escapes.append(Escape(text=match[0], offset=offset, scalar=id(node), name=name, one_dollar=one_dollar))
            offset += len(match[0])
