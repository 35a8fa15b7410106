"""The text of a template, in which a word without a meaning in YAML stands for each reference while it is parsed. Pure."""

from __future__ import annotations

import re

from kfjob.shell.variables import find_references
from kfjob.source.template.positions import TextMap


class MarkedText:
    """A template's text, and the same text with a word in place of each reference."""

    def __init__(self, text: str) -> None:
        """Choose a word that the text does not contain."""
        self.text = text
        self._references = list(find_references(text))
        stem = "kfjobReference"
        while stem in text:
            stem += "X"
        self._word = re.compile(rf"{stem}([0-9]+)Z")
        parts, offset = [], 0
        replaced = []
        for number, reference in enumerate(self._references):
            parts += [text[offset : reference.start()], word := f"{stem}{number}Z"]
            offset = reference.end()
            replaced.append((reference.start(), offset, len(word)))
        self.marked = "".join([*parts, text[offset:]])
        """The text for YAML's parser."""
        self.map = TextMap(text, replaced)

    def restore(self, marked: str) -> str:
        """Return a part of the parsed text with the references in place of their words."""
        return self._word.sub(lambda word: self._references[int(word[1])][0], marked)

    def find_offsets(self, marked: str) -> list[int]:
        """Return where the references of a part of the parsed text begin in the template."""
        return [self._references[int(number)].start() for number in self._word.findall(marked)]

    def locate(self, offset: int) -> tuple[int, int]:
        """Return the line and the column of an offset in the template."""
        return self.text.count("\n", 0, offset) + 1, offset - self.text.rfind("\n", 0, offset)
