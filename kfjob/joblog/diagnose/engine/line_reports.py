"""What single lines report, and when: the newest lines with their times, how the program goes on, its success, and timeouts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from msgspec import Struct, field

from kfjob.base.patterns import Pattern
from kfjob.joblog.lines.prefixes import split_prefix
from kfjob.joblog.lines.timestamps import Timestamp, parse_glog, parse_rfc3339
from kfjob.joblog.lines.vocabulary import COUNTER_WORDS, LOSS_WORDS, WEAK_COUNT
from kfjob.joblog.master.evidence import describe_ranks
from kfjob.joblog.progress.figures.bars import FULL, MARKER, BarRole, find_bar, find_role, read_bar
from kfjob.joblog.progress.figures.line_figures import parse_line
from kfjob.redaction import cut_text

MAX_LINES = 200
"""Newest lines in which a timestamp is searched."""

_SEARCH_LENGTH = 100
"""First characters of a line, in which a time is searched."""
_MIN_COLONS = 2
"""Colons in every time."""
_FULL = Pattern(r"(\d{4}-\d\d-\d\d)[ T_](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)")
_GLOG = Pattern(r"(?:^|[^A-Za-z])[IWEFCV](\d{4}) (\d\d:\d\d:\d\d\.\d+)")


class RecentLines:
    """The newest lines of one container."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int | None, str]] = deque(maxlen=MAX_LINES)
        self._count = 0
        self._searched = 0  # lines in which a timestamp was searched
        self._dated: tuple[int, Timestamp] | None = None  # number and timestamp of the newest line that has one

    def append(self, time: int | None, text: str) -> None:
        """Add a line with the kubelet's time."""
        self._lines.append((time, text))
        self._count += 1

    def timestamp(self) -> Timestamp:
        """Return the time of the last line; if it has none, the time of the newest earlier line that has one."""
        for distance, (time, text) in enumerate(islice(reversed(self._lines), self._count - self._searched)):
            if timestamp := Timestamp(time=time) if time is not None else find_timestamp(text):
                self._dated = self._count - distance, timestamp
                break
        self._searched = self._count
        if self._dated is None or self._count - self._dated[0] >= MAX_LINES:
            return Timestamp(exact=False)
        number, timestamp = self._dated
        return Timestamp(timestamp.time, timestamp.yearless, exact=number == self._count)

    def find_time(self) -> int | None:
        """Return the newest time with a year in the lines."""
        stamps = (find_timestamp(text) for text in self.texts())
        return next((stamp.time for stamp in stamps if stamp and stamp.time is not None), None)

    def before(self) -> Iterator[str]:
        """Return the lines before the last one, the newest first."""
        return (text for _, text in islice(reversed(self._lines), 1, None))

    def texts(self) -> Iterator[str]:
        """Return all lines, the newest first."""
        return (text for _, text in reversed(self._lines))

    def dated_texts(self) -> Iterator[tuple[int | None, str]]:
        """Return all lines with the kubelet's time, the newest first."""
        return reversed(self._lines)

    def last_texts(self, count: int) -> list[str]:
        """Return the last lines that are not blank, in the order of the log."""
        lines = (text.strip() for text in self.texts())
        return list(islice((text for text in lines if text), count))[::-1]

    @property
    def last_text(self) -> str:
        """The last line that is not blank."""
        return next((text.strip() for _, text in reversed(self._lines) if text.strip()), "")


def find_timestamp(text: str) -> Timestamp | None:
    """Return the timestamp at the start of the line, taken as UTC, or None."""
    text = text[:_SEARCH_LENGTH]
    if text.count(":") < _MIN_COLONS:
        return None
    if match := _FULL.search(text):
        return Timestamp(time=parse_rfc3339(f"{match[1]} {match[2]}"))
    if match := _GLOG.search(text):
        return Timestamp(yearless=parse_glog(match[1], match[2]))
    return None


MAX_LENGTH = 400
"""Characters of a line to search; a longer line announces nothing."""

_INSTEAD = r"falling back|skipping|skipped (?:a |the )?(?:sample|batch|file|record|item)s?|ignoring|accepting|using fallback"
_RETRY = r"retrying|thrown while requesting|will (?:retry|be retried|try again)|trying again"
_PASSIVE = r"(?:will )?ignored?|falls? back to|continuing (?:without|with|anyway)|will operate in|will be skipped"
_CONTINUATION = Pattern(rf"(?i)\b(?:{_INSTEAD}|{_RETRY}|{_PASSIVE})\b")
_CONTINUATION_BELOW = Pattern(
    rf"(?i)^\W{{0,3}}(?:{_INSTEAD}|continuing)\b|\bfalling back to"
    rf"|[,;:.-] (?:{_INSTEAD}|continuing|using (?:\w+ ){{1,3}}instead)\b|not available[,;] using "
)

_STEMS = ("finished", "complete", "done", "succeeded", "saved ", "saving ", "train_runtime", "stopped: `max_", "exit")
"""Lower-case literals of which every report of success contains one."""
SUCCESS_LITERALS = (*(form for stem in _STEMS for form in (stem, stem.capitalize(), stem.upper())), f"{FULL}{MARKER}")
"""Literals of which every line with a success contains one, in the usual forms of their letters."""

_SUCCESS = Pattern(
    r"(?i)'?\btrain_runtime'?\s*[:=]\s*['\d]"
    r"|\b(?:training|trainer|fine-?tuning|pre-?training|optimi[sz]ation|experiment|job|run|script|program|everything)\b"
    r"[^:=]{0,40}\b(?:finished|completed?|done|succeeded)\b"
    r"|\b(?:finished|completed|done) (?:with )?(?:the )?(?:training|fine-?tuning|pre-?training|run|job|everything|all epochs)"
    r"|\ball done\b|^\W{0,3}(?:done|finished)\b[.!, ]{0,3}(?:$|exit|in \d)"
    r"|\bsaved (?:the )?(?:model|adapter|weights) (?:to|at|in|under)\b"
    r"|\b(?:model|adapter|weights)\b.{0,20}\bsaved (?:to|at|in|under)\b"
    r"|\bsav(?:ed|ing) (?:the )?(?:final|trained|last|best)\b.{0,20}\b(?:model|checkpoint|adapter|weights)"
    r"|`Trainer\.fit` stopped: `max_|\bexit(?:ed|ing)?(?: with)?(?: code)?[:=]? ?0\b"
)
_DENIAL = Pattern(r"(?i)\b(?:not|never|before|unable|until|when|if|once|waiting|stale|after)\b|n't ")
_FAILURE = Pattern(r"(?i)fail|error|abort|interrupt|cancel|unsuccess|exception")
_MAY_COUNT = Pattern(f"(?i){'|'.join(sorted(COUNTER_WORDS | LOSS_WORDS))}")


MAX_RANKS = 64
"""Ranks of a pod with a timeout to remember."""
MAX_TIMEOUT_QUOTE = 300
"""Characters of a quoted line about a timeout."""
_TIMEOUT_LITERALS = ("Watchdog caught collective operation timeout", "Timed out waiting ", "failed to pass monitoredBarrier")
_WATCHDOG = Pattern(
    r"(?:\[(?P<group>(?:PG ID \d+ PG GUID \S{0,200} |PG \d+ )?)Rank (?P<rank>\d{1,6})\] )?"
    r"Watchdog caught collective operation timeout(?:: WorkNCCL\(SeqNum=(?P<number>\d{1,18}), OpType=(?P<operation>\w{1,40}))?"
)
_DEFAULT_GROUP = Pattern(r"^(?:PG ID \d+ PG GUID 0\(default_pg\) |PG 0 )?$")
_GLOO_TIMEOUT = Pattern(r"Timed out waiting \d{1,12}ms for (?:recv|send) operation")
_BARRIER_TIMEOUT = Pattern(r"Ranks? (?P<ranks>\d{1,6}(?:, \d{1,6}){0,63}) failed to pass monitoredBarrier")


class Announcement(Struct):
    """What a program says about an error after it: an incident and the occurrence that it shows share one of these."""

    handled: bool = False  # the program says what it does instead

    def read(self, text: str) -> None:
        """Read a line after the error."""
        self.handled = self.handled or (len(text) <= MAX_LENGTH and _CONTINUATION_BELOW.search(text) is not None)


def announces_continuation(text: str) -> bool:
    """Return whether the line of an error says itself what the program does instead, or that it tries again."""
    return _CONTINUATION.search(text) is not None


def find_count(text: str) -> float | None:
    """Return the number of the step, epoch or batch that the line or its progress bar reports; None for another line."""
    if _FAILURE.search(text):  # Slurm's `error: *** STEP 512.0 CANCELLED`
        return None
    if bar := find_bar(text):
        return bar.counts.step if bar.counts else None
    counters = parse_line(text).counters if _MAY_COUNT.search(text) else ()
    return next((counter.value for counter in counters if counter.has_name and counter.priority < WEAK_COUNT), None)


def reports_success(text: str) -> bool:
    """Return whether the program says in the line that it has done its work."""
    if len(text) > MAX_LENGTH or not _may_report_success(text):
        return False
    if not (match := _SUCCESS.search(text)) or _FAILURE.search(text):
        return False
    return not _DENIAL.search(match.before + match[0])


def _may_report_success(text: str) -> bool:
    """Return whether the line has a word of a report of success."""
    lowered = text.lower()
    return any(stem in lowered for stem in _STEMS)


def has_full_bar(text: str) -> bool:
    """Return whether a progress bar of the training has reached its end in the line.

    A bar without a description counts, as that of transformers' `Trainer`, unless it counts data.
    """
    bar = find_bar(text.rpartition("\r")[2])
    if bar is None or bar.counts is None or bar.percent != FULL:
        return False
    return find_role(read_bar(bar, bar.counts)) in {BarRole.TRAINING, BarRole.EPOCHS, BarRole.NAMELESS}


def find_rank(text: str, ranks: tuple[int, ...]) -> int | None:
    """Return the global rank that printed the line: from its prefix, else the pod's only rank."""
    prefix, _ = split_prefix(text)
    if prefix.rank is None:
        return ranks[0] if len(ranks) == 1 else None
    if not prefix.is_local_rank:
        return prefix.rank
    return ranks[prefix.rank] if prefix.rank < len(ranks) else None


class Collective(NamedTuple):
    """A collective of the default process group."""

    number: int
    operation: str

    def __str__(self) -> str:
        """Return `ALLREDUCE 41`."""
        return f"{self.operation} {self.number}"


class Timeout(NamedTuple):
    """A collective in which a rank timed out, and the line that says so."""

    collective: Collective | None  # None if the line does not name it
    text: str
    line: int


class Timeouts(Struct):
    """The ranks of one container that timed out, and the ranks that others name because they did not come."""

    by_rank: dict[int, Timeout] = field(default_factory=dict)  # the first timeout of each rank
    absent: dict[int, Timeout] = field(default_factory=dict)

    def read(self, text: str, *, line: int, ranks: tuple[int, ...]) -> None:
        """Record the timeout in this line; `ranks` are the global ranks of the container.

        Only collectives of the default group count: the ranks of other groups count from 0, and each group numbers its own
        collectives.
        """
        if not any(literal in text for literal in _TIMEOUT_LITERALS) or len(self.by_rank) >= MAX_RANKS:
            return
        quote = cut_text(text, MAX_TIMEOUT_QUOTE)
        if match := _BARRIER_TIMEOUT.search(text):
            self.absent |= {int(rank): Timeout(None, quote, line) for rank in match["ranks"].split(", ")}
            return
        match = _WATCHDOG.search(text)
        if match is None and not _GLOO_TIMEOUT.search(text):
            return
        rank = int(match["rank"]) if match and match["rank"] else find_rank(text, ranks)
        is_default = match is None or _DEFAULT_GROUP.search(match["group"] or "") is not None
        if rank is not None and is_default:
            collective = Collective(int(match["number"]), match["operation"]) if match and match["number"] else None
            self.by_rank.setdefault(rank, Timeout(collective, quote, line))


def find_difference(collectives: Mapping[int, Collective]) -> tuple[list[int], str] | None:
    """Return the ranks that took another path than most, and what they did; None if all ranks timed out in one collective."""
    counts = Counter(collectives.values())
    if len(counts) == 1 or not counts:
        return None
    usual = max(counts, key=lambda collective: (counts[collective], collective.number))
    others = sorted(rank for rank, collective in collectives.items() if collective != usual)
    parts = []
    for collective in sorted({collectives[rank] for rank in others}):
        ranks = [rank for rank in others if collectives[rank] == collective]
        parts.append(f"{describe_ranks(ranks)} in {collective}")
    most = [rank for rank, collective in collectives.items() if collective == usual]
    return others, f"{', '.join(parts)}, and {describe_ranks(most)} in {usual}"
