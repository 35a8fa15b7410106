"""Leave the lines of torchrun's agents out of logs, and count them."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator

from kfjob.api.excerpts import Line
from kfjob.api.logs.merge import take_last
from kfjob.joblog.agents.program_lines import ProgramFilter
from kfjob.joblog.events import LogLine

_FIRST_FACTOR, _NEXT_FACTOR, _FIRST_EXTRA = 4, 8, 500
"""Lines to read for each line of a tail, then the factor for each further attempt; agents print most lines of a short job."""


class AgentFilter:
    """Passes the program's lines on, and counts those of the agents that `includes` accepts."""

    def __init__(self, includes: Callable[[str], bool]) -> None:
        """Count only lines that would be printed."""
        self.left_out = 0
        """Lines of agents that were left out."""
        self._includes = includes

    def filter(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Yield the lines of the program, and the gaps."""
        program = ProgramFilter()
        waiting = 0
        for line in lines:
            if not isinstance(line, LogLine):
                yield line
                continue
            selected = program.feed(line)
            waiting += self._includes(line.text) - sum(self._includes(item.text) for item in selected)
            self.left_out = max(waiting, 0)
            yield from selected
        rest = program.flush()
        self.left_out = max(waiting - sum(self._includes(item.text) for item in rest), 0)
        yield from rest

    def filter_unless_empty(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Yield the lines of the program; all lines if they are the agents'."""
        all_lines = list(lines)
        selected = list(self.filter(all_lines))
        self.left_out = self.left_out if selected else 0
        yield from selected or all_lines

    def take_last(self, read: Callable[[int], Iterable[Line]], count: int) -> list[Line]:
        """Return the last lines of the program of each pod; `read` returns the last lines of each log.

        Only as much of the logs is read as has enough lines of the program. Lines of agents count if they are among the last.
        """
        size = count * _FIRST_FACTOR + _FIRST_EXTRA
        while True:
            numbers: Counter[str] = Counter()
            newest: dict[str, deque[LogLine]] = defaultdict(lambda: deque(maxlen=count))
            selected = take_last(self.filter(_record(read(size), numbers, newest)), self._includes, count)
            shown = Counter(line.pod for line in selected if isinstance(line, LogLine))
            if all(shown[pod] >= count for pod, number in numbers.items() if number >= size):
                ids = set(map(id, selected))
                self.left_out = sum(id(line) not in ids for lines in newest.values() for line in lines)
                return selected
            size *= _NEXT_FACTOR


def _record(lines: Iterable[Line], numbers: Counter[str], newest: dict[str, deque[LogLine]]) -> Iterator[Line]:
    """Yield the lines; count them by pod, and keep the newest of each pod."""
    for line in lines:
        if isinstance(line, LogLine):
            numbers[line.pod] += 1
            newest[line.pod].append(line)
        yield line
