"""What a line without a bar says by itself, independent of the lines above it."""

from __future__ import annotations

import re
from typing import NamedTuple

from kfjob.joblog.lines.meanings import Phase, find_phase, is_preparation, split_name
from kfjob.joblog.lines.vocabulary import ANNOUNCEMENT
from kfjob.joblog.progress.figures import tables
from kfjob.joblog.progress.figures.line import Figures, parse_message
from kfjob.joblog.progress.figures.messages import Message, find_message

_MAX_ANNOUNCEMENT = 400
"""Characters of a line in which the announcement of training is searched."""
_NUMBER = re.compile(r"\d|(?i:\bnan\b|\binf)")


class Content(NamedTuple):
    """The content of a line."""

    message: Message
    header: tables.Table | None = None  # the line names the columns of a table
    figures: Figures = Figures()
    is_cell: bool = False  # `| name | value |`

    @property
    def names_evaluation(self) -> bool:
        """Whether the words of the line speak of evaluation, as its heading does."""
        return find_phase(split_name(self.message.text)) is Phase.EVALUATION

    @property
    def is_preparation(self) -> bool:
        """Whether the line counts something other than training."""
        return self.figures.loss is None and is_preparation(self.figures.words)

    @property
    def matters(self) -> bool:
        """Whether the line may belong to a curve."""
        if self.header is not None or self.names_evaluation:
            return True
        return not self.figures.is_empty and not self.is_preparation


def read_content(text: str) -> Content:
    """Return the content of a line without colours."""
    message = find_message(text)
    if header := tables.parse_header(message.text):
        return Content(message, header)
    if not _NUMBER.search(message.text):
        return Content(message)
    if cells := tables.split_cells(text) or tables.split_cells(message.text):
        return Content(message, figures=parse_message(": ".join(cells), rank=message.rank), is_cell=True)
    return Content(message, figures=parse_message(message.text, rank=message.rank, phase=message.phase))


def announces_training(text: str) -> bool:
    """Return whether the line says that training begins."""
    return ANNOUNCEMENT.search(text[:_MAX_ANNOUNCEMENT]) is not None
