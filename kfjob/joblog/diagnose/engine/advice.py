"""What an exception that no rule knows says itself: its own advice, and what its class means for the failing line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kfjob.joblog.diagnose.engine.incidents import Incident
from kfjob.redaction import cut_text

MAX_SENTENCES = 2
"""Sentences of advice to quote."""
MAX_ADVICE = 300
"""Characters of the advice."""
MAX_CODE = 120
"""Characters of a quoted source line."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")
_ADVICE = re.compile(
    r"(?:Please|Make sure|Ensure|Consider|You (?:can|should|must|need|may|might)|Try|Either|Set|Install|Use|Run|Pass|Add|Check"
    r"|Increase|Decrease|Reduce|Upgrade|Downgrade|Did you mean|To (?:fix|resolve|use|disable|enable|avoid|load|run)|If you"
    r"|See(?: also| the|:)? |Refer to|Rerun|Specify|Provide|Re-?install)\b",
    re.IGNORECASE,
)
_MEANINGS = {
    "KeyError": "the program asks for the key {value}, which does not exist",
    "IndexError": "the program uses an index beyond the end of a list, a row or a tensor",
    "AttributeError": "the program uses an attribute that its object does not have",
    "AssertionError": "the condition of an `assert` in the program does not hold",
    "ZeroDivisionError": "the program divides by zero: a length, a count or a world size is 0",
    "NotImplementedError": "the program calls a function that is not implemented for this case",
    "NameError": "the program uses a name that nothing has defined",
    "UnboundLocalError": "the program uses a variable before it has a value",
    "TypeError": "the program passes a value of a wrong type, or wrong arguments to a function",
    "ValueError": "the program passes a value that the function does not accept",
    "RecursionError": "a function calls itself without end",
    "StopIteration": "the program reads beyond the end of an iterator: the data has fewer batches than it expects",
    "OverflowError": "a number is too large for its type",
    "FileExistsError": "the program creates a file or folder that exists: another rank or an earlier run made it",
    "IsADirectoryError": "the program opens a folder as a file",
    "NotADirectoryError": "the program uses a file as a folder",
    "TimeoutError": "the program waited for longer than its limit",
}
_UNPACKING = re.compile(
    r"(?:not enough|too many) values to unpack \(expected (?P<expected>at least \d+|\d+)(?:, got (?P<count>\d+))?\)"
)
_TERMINAL = re.compile(r"\bstty\b|get_terminal_size|TIOCGWINSZ")
"""Code that asks for the size of the terminal."""
_UNKNOWN = "kfjob does not know this error; its message is below"


def find_message(incident: Incident) -> str:
    """Return the first line of the exception's message that is not blank."""
    lines = (incident.message, *incident.lines[1:])
    return next((line.strip() for line in lines if line.strip()), "")


def explain_class(incident: Incident) -> str:
    """Return what the class of the exception means, with the program's own line that failed."""
    meaning = _explain_unpacking(incident.message) or _MEANINGS.get(incident.name)
    if meaning is None:
        return _UNKNOWN
    text = meaning.format(value=cut_text(incident.message, MAX_CODE) or "of its last line")
    code = incident.frame[1].strip() if len(incident.frame) > 1 else ""
    if _TERMINAL.search(code):
        text = f"the program needs a terminal, and a job has none: {text}"
    return f"{text}; the line is `{cut_text(code, MAX_CODE)}`" if code else text


def _explain_unpacking(message: str) -> str:
    """Return how many values a sequence has, and how many the program takes from it; "" for another message."""
    match = _UNPACKING.match(message)
    if match is None:
        return ""
    count = match["count"] or f"more than {match['expected']}"
    return f"a sequence has {count} values where the program unpacks {match['expected']}"


def find_advice(incident: Incident) -> str:
    """Return the advice in the exception's own message; "" without one."""
    text = " ".join(line.strip() for line in (incident.message, *incident.lines[1:]) if line.strip())
    return cut_text(" ".join(list(_find_sentences(text))[:MAX_SENTENCES]), MAX_ADVICE)


def _find_sentences(text: str) -> Iterator[str]:
    return (sentence.strip() for sentence in _SENTENCE_END.split(text) if _ADVICE.match(sentence.strip(" -*•1234567890.()")))
