"""What a program itself reports: that it goes on after an error, by words, lines or steps, and that it has done its work."""

from __future__ import annotations

from msgspec import Struct

from kfjob.base.patterns import Pattern
from kfjob.base.units import SECOND
from kfjob.joblog.lines.vocabulary import COUNTER_WORDS, LOSS_WORDS, WEAK_COUNT
from kfjob.joblog.progress.figures.bars import FULL, MARKER, BarRole, find_bar, find_role, read_bar
from kfjob.joblog.progress.figures.line_figures import parse_line
from kfjob.joblog.progress.figures.tokens import parse_figure

_INSTEAD = r"falling back|skipping|ignoring|accepting|using fallback"
_RETRY = r"retrying|will (?:retry|be retried|try again)|trying again"
_PASSIVE = r"(?:will )?ignored?|falls? back to|continuing (?:without|with|anyway)|will operate in|will be skipped"

_CONTINUATION = Pattern(rf"(?i)\b(?:{_INSTEAD}|{_RETRY}|{_PASSIVE})\b")
_CONTINUATION_BELOW = Pattern(
    rf"(?i)^\W{{0,3}}(?:{_INSTEAD}|continuing)\b|\bfalling back to"
    rf"|[,;:.-] (?:{_INSTEAD}|continuing|using (?:\w+ ){{1,3}}instead)\b|not available[,;] using "
)
_RETRY_BELOW = Pattern(rf"(?i)\b(?:{_RETRY})\b|retry attempt \d|attempt \d+ ?(?:/|of) ?\d+")

MAX_LATER_LINES = 500
"""Lines to read after an error."""
MESSAGE_TIME = SECOND // 20
"""Time in which a process prints all lines of a message."""
_ONE_LINE_MESSAGES = frozenset(
    ("ModuleNotFoundError", "FileNotFoundError", "PermissionError", "NameError", "KeyError", "IndexError", "ZeroDivisionError")
)
"""Exceptions whose messages have one line."""
END_TIME = SECOND
"""Time in which a process that an exception ends prints its last lines."""
_LAST_WORDS = Pattern(
    r"^wandb: |^(?:\[rank\d+\]:)?\[[A-Z]\d|Exception ignored in|resource_tracker|subprocess|terminate called|Fatal Python"
    r"|frame #|^[\w.]*(?:Error|Exception|Warning)\b|above exception|^\W*$| FAILED$|clos|clean|shut|exit|destroy|teardown"
)
"""Words of lines that a process prints while an exception ends it."""

MAX_COUNT = 100
"""Steps to count after an error."""
WATCHED_LINES = 50
"""Lines to read completely after an exception; they show whether its process goes on."""
MAX_LENGTH = 400
"""Characters of a line to search; a longer line after an error announces nothing."""

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


class Announcement(Struct):
    """What a program says about an error after it: an incident and the occurrence that it shows share one of these."""

    handled: bool = False  # the program says what it does instead
    retried: bool = False  # the program says that it tries again

    def read(self, text: str) -> None:
        """Read a line after the error."""
        self.handled = self.handled or announces_recovery(text)
        self.retried = self.retried or announces_retry(text)


class LaterLines(Struct):
    """What the process of an error printed after it: an exception that ended its process is followed by nothing."""

    count: int = 0  # ordinary lines of its stream, which other processes may share
    searched: int = 0  # all lines that were read
    has_late_line: bool = False  # such a line came so much later that no end of a process explains it

    def read(self, text: str, elapsed: int | None) -> None:
        """Read a line of the stream, printed `elapsed` nanoseconds after the error."""
        self.searched += 1
        if self.searched > MAX_LATER_LINES or find_step(text) is not None:
            return  # the other ranks train until the agent ends them
        if not text.strip() or text[0].isspace() or len(text) > MAX_LENGTH or _LAST_WORDS.search(text):
            return
        self.count += 1
        self.has_late_line = self.has_late_line or (elapsed is not None and elapsed > END_TIME)

    def read_below(self, text: str, elapsed: int | None, *, name: str) -> None:
        """Read a line below the first line of an exception's message: it belongs to the message, or is a further line."""
        if name in _ONE_LINE_MESSAGES or (elapsed is not None and elapsed > MESSAGE_TIME):
            self.read(text, elapsed)

    @property
    def is_known(self) -> bool:
        """Whether more lines make no difference."""
        return self.has_late_line or self.searched >= MAX_LATER_LINES


def announces_continuation(text: str) -> bool:
    """Return whether the line of an error says itself what the program does instead, or that it tries again."""
    return _CONTINUATION.search(text) is not None


def announces_recovery(text: str) -> bool:
    """Return whether a line after an error says what the program does instead of what has failed."""
    return len(text) <= MAX_LENGTH and _CONTINUATION_BELOW.search(text) is not None


def announces_retry(text: str) -> bool:
    """Return whether a line after an error says that the program tries again, which may fail too."""
    return len(text) <= MAX_LENGTH and _RETRY_BELOW.search(text) is not None


class Activity(Struct):
    """What a container's program printed after its newest error, and its own report of success."""

    is_watched: bool = False  # an exception was reported, so steps are counted
    last_watched: int = 0  # number of the last line to read completely
    steps: int = 0  # distinct steps printed after the first exception
    newest: float | None = None  # number of the newest step
    success: tuple[int, int, str] | None = None  # order, line and text of the newest report of success

    def read_success(self, text: str, *, order: int, line: int) -> None:
        """Record the line if the program reports success in it."""
        if reports_success(text):
            self.success = order, line, text.strip()

    def watch(self, line: int) -> None:
        """Count the steps after an exception in this line."""
        self.is_watched, self.last_watched = True, line + WATCHED_LINES

    def count_step(self, text: str) -> None:
        """Count the line if it shows another step than the one before; a bar may draw the same step twice."""
        if not self.is_watched or self.steps >= MAX_COUNT:
            return
        if (step := find_step(text)) is not None and step != self.newest:
            self.newest = step
            self.steps += 1


def find_step(text: str) -> float | None:
    """Return the number of the step that the line reports, or its loss where it counts nothing; None for another line."""
    text = text[-MAX_LENGTH:]
    if (count := find_count(text)) is not None or _FAILURE.search(text):
        return count
    if bar := find_bar(text):
        return parse_figure(bar.percent)
    return parse_line(text).loss if _MAY_COUNT.search(text) else None


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
