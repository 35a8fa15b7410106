"""Read numbers, sizes and durations that are written as people say them, to suggest how a spec writes them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import ascii_letters

from kfjob.base.units import COUNT_SUFFIXES

_SMALL = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
_SMALL += "eighteen nineteen"
_NUMBERS = {word: number for number, word in enumerate(_SMALL.split())}
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBERS |= {word: 10 * tens for tens, word in enumerate(_TENS.split(), start=2)}
_NUMBERS |= {"single": 1, "no": 0, "none": 0, "never": 0, "both": 2, "dozen": 12}
_ARTICLES = ("a", "an")
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_FIGURES = re.compile(r"([+-]?[\d.,_']*\d)([eE][+-]?\d{1,3})?([kKMB%]?)")
"""`1,000`, `3k`, `1e6`, `0,1`, `5%`."""
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:[,_']\d{3})+(?:\.\d+)?")
_SUFFIXES = ("m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi")
_SIZE_UNITS = {
    **{f"{letter}{end}": suffix for letter, suffix in zip("kmgtp", "kMGTP", strict=True) for end in ("", "b", "byte", "bytes")},
    **{f"{letter}i{end}": f"{letter.upper()}i" for letter in "kmgtp" for end in ("", "b", "byte", "bytes")},
    **{
        f"{prefix}{end}": suffix
        for prefix, suffix in (
            *zip(("kilo", "mega", "giga", "tera", "peta"), "kMGTP", strict=True),
            *zip(("kibi", "mebi", "gibi", "tebi", "pebi"), ("Ki", "Mi", "Gi", "Ti", "Pi"), strict=True),
        )
        for end in ("byte", "bytes")
    },
    **dict.fromkeys(("gig", "gigs"), "G"),
    **dict.fromkeys(("", "b", "byte", "bytes", "core", "cores", "cpu", "cpus", "vcpu", "vcpus", "gpu", "gpus"), ""),
    **dict.fromkeys(("millicore", "millicores", "millicpu", "millicpus"), "m"),
}
_TIME_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86400),
}
_TIME_TOKEN = re.compile(r"[a-z]+|[\d.]+|[^\s,]")
_CLOCK = re.compile(r"(\d+):(\d\d)(?::(\d\d))?")
_MAX_WORD = 60
"""Characters of a text that may be a number, a size or a duration in words."""
_TOO_LARGE = 10**15
_DURATION_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION_PARTS = re.compile(r"(?<!\d)(\d+)([smhd])")


def parse_duration(text: str) -> int | None:
    """Return the seconds of a duration such as `90m` or `1d12h`; None if the text has another form."""
    parts = _DURATION_PARTS.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(int(number) * _DURATION_UNITS[unit] for number, unit in parts)


def format_duration(seconds: int) -> str:
    """Return seconds, which are not negative, as `parse_duration` reads them: `36h` is `1d12h`."""
    parts = ((seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


def suggest_number(value: object, *, whole: bool) -> str | None:
    """Return the number that a text such as `two`, `1,000`, `3k` or `2 nodes` stands for, as a spec writes it."""
    if isinstance(value, bool):
        return None
    number = _parse_words(str(value)) if isinstance(value, str) else value if isinstance(value, float) else None
    if number is None and isinstance(value, str) and len(value) <= _MAX_WORD:
        number = _parse_figures(value.strip())
    if number is None or not abs(number) < _TOO_LARGE or (whole and number != int(number)):
        return None
    return str(int(number)) if number == int(number) and (whole or abs(number) >= 1) else f"{number:g}"


def suggest_quantity(text: str) -> str | None:
    """Return a size such as `10GB`, `16 gibibytes` or `two cores` as a Kubernetes quantity."""
    if len(text) > _MAX_WORD:
        return None
    figures = text.strip().rstrip(ascii_letters)
    suffix = text.strip()[len(figures) :]
    unit = suffix if suffix in _SUFFIXES else _SIZE_UNITS.get(suffix.lower())
    if unit is None and suffix.lower() not in (*_NUMBERS, *_SCALES):
        return None
    number = suggest_number(text if unit is None else figures.strip(), whole=False)
    if number is None or number.startswith("-") or "e" in number:
        return None
    return number + (unit or "")


def suggest_duration(text: str) -> str | None:
    """Return a time such as `10 minutes`, `1.5 h` or `02:30:00` (hours first) as a spec writes it."""
    if len(text) > _MAX_WORD:
        return None
    if clock := _CLOCK.fullmatch(text.strip()):
        return format_duration(int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3] or 0))
    tokens = [word for word in _TIME_TOKEN.findall(text.lower()) if word != "and"]
    if not tokens or len(tokens) % 2:
        return None
    seconds = 0.0
    for figures, unit in zip(tokens[::2], tokens[1::2], strict=True):
        number = "1" if figures in _ARTICLES else suggest_number(figures, whole=False)
        if number is None or unit not in _TIME_UNITS:
            return None
        seconds += float(number) * _TIME_UNITS[unit]
    return format_duration(round(seconds))


def _parse_words(text: str) -> float | None:
    """Return the number that English words stand for; a noun may follow: `two nodes`."""
    if len(text) > _MAX_WORD:
        return None
    words = [word for word in re.split(r"[\s-]+", text.lower()) if word != "and"]
    words = words[1:] if words[:1] and words[0] in _ARTICLES else words
    numbers = _take_numbers(words)
    if not numbers or len(words) - len(numbers) > 1:
        return None
    total, group = 0, 0
    for word in numbers:
        if word in _SCALES:
            group = max(group, 1) * _SCALES[word]
            if word != "hundred":
                total, group = total + group, 0
        else:
            group = group * 12 if word == "dozen" and group else group + _NUMBERS[word]
    return total + group


def _take_numbers(words: Iterable[str]) -> list[str]:
    numbers: list[str] = []
    for word in words:
        if word not in _NUMBERS and word not in _SCALES:
            break
        numbers.append(word)
    return numbers


def _parse_figures(text: str) -> float | None:
    """Return the number in figures; nouns may follow: `2 nodes`."""
    figures, *nouns = text.split() or [""]
    match = _FIGURES.fullmatch(figures)
    if not match or not all(noun.isalpha() for noun in nouns):
        return None
    is_grouped = _THOUSANDS.fullmatch(match[1])
    plain = re.sub(r"[,_']", "" if is_grouped else ".", match[1])
    try:
        number = float(plain + (match[2] or ""))
    except ValueError:
        return None
    return number / 100 if match[3] == "%" else number * COUNT_SUFFIXES.get(match[3].lower(), 1)
