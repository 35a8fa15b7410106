"""Units of time and size, suffixes of counts, and Kubernetes quantities."""

from __future__ import annotations

import re

SECOND = 1_000_000_000
"""Nanoseconds in a second. Times in kfjob are nanoseconds since the epoch, because the kubelet stamps log lines with them."""
MAX_TIME = 2**63 - 1
"""Nanoseconds since 1970 of the last time that 64 bits hold, in the year 2262; later times come from broken clocks or
hostile lines."""
COUNT_SUFFIXES = {"k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
"""What a letter after a count multiplies it by: `1.2K`, `5B`. Programs write it in either case."""
KIB, MIB, GIB = 1024, 1024**2, 1024**3
"""Bytes."""

_SUFFIXES = {
    **{suffix: 1024.0**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
    **{suffix: 1000.0**power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
}
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|(?P<exponent>[eE][+-]?[0-9]+))?"
)
"""The pattern of Kubernetes' schemas, without fractions in an exponent, which the API server's parser refuses."""

_DURATION_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION_PARTS = r"(?<!\d)(\d+)([smhd])"


def check_time(time: int | None) -> int | None:
    """Return the time, None if it is no time of a job."""
    return time if time is not None and 0 <= time <= MAX_TIME else None


def format_gib(size: float) -> str:
    """Return a number of bytes as `1.5 GiB`."""
    return f"{size / GIB:.1f} GiB"


def parse_quantity(quantity: object) -> float:
    """Return the number of bytes, cores or devices that a Kubernetes quantity stands for (`500m`, `16Gi`, `1e3`).

    The forms are those of apimachinery's `resource.Quantity`. `kubernetes.utils.parse_quantity` knows most of them, but
    importing it loads the client.

    Raises:
        ValueError: the text is not a quantity.
    """
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        raise ValueError(f"could not convert to a quantity: {quantity!r}")
    return float(match["number"] + (match["exponent"] or "")) * _SUFFIXES.get(match["suffix"], 1.0)


def parse_duration(text: str) -> int | None:
    """Return the seconds of a duration such as `90m` or `1d12h`; None if the text has another form."""
    parts = re.findall(_DURATION_PARTS, text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(int(number) * _DURATION_UNITS[unit] for number, unit in parts)


def format_duration(seconds: int) -> str:
    """Return seconds, which are not negative, as `parse_duration` reads them: `36h` is `1d12h`."""
    parts = ((seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"
