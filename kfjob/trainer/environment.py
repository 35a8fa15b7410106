"""The variables with which a launcher tells a process its place in the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from kfjob.base.errors import KfjobError
from kfjob.trainspec.packages import find_packages
from kfjob.trainspec.train_spec import TrainSpec

_SMALLEST = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
"""The variables, each with its smallest value, which is also its default."""
_HINT = "start the ranks with torchrun, which sets these variables, or remove them for a run of one process"


def read_place(variables: Mapping[str, str] = os.environ) -> dict[str, int]:
    """Return the values of RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE; without a launcher, those of one process.

    Raises:
        KfjobError: a value is not a number or out of range, or one is missing, so that the ranks could never meet.
    """
    place = {name: _read_number(variables.get(name, str(smallest)), name) for name, smallest in _SMALLEST.items()}
    for rank, size in (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE")):
        if place[rank] >= place[size] and size in variables:
            title = f"{rank} is {place[rank]}, and {size} is {place[size]}: ranks count from 0"
            raise KfjobError(title, location=rank, hint=_HINT)
    if place["RANK"] and "WORLD_SIZE" not in variables:
        raise KfjobError(f"RANK is {place['RANK']}, but WORLD_SIZE is not set", location="WORLD_SIZE", hint=_HINT)
    return place


def check_meeting_point(place: Mapping[str, int], variables: Mapping[str, str] = os.environ) -> None:
    """Check that several processes can find each other.

    Raises:
        KfjobError: a variable is missing.
    """
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not variables.get(name)]
    if place["WORLD_SIZE"] > 1 and missing:
        title = f"WORLD_SIZE is {place['WORLD_SIZE']}, but {missing[0]} is not set: the ranks cannot find each other"
        raise KfjobError(title, location=missing[0], hint=_HINT)
    port = variables.get("MASTER_PORT")
    if "MASTER_ADDR" in variables and port and not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise KfjobError(f"MASTER_PORT is `{port}`, not the number of a port", location="MASTER_PORT", hint=_HINT)


def _read_number(text: str, name: str) -> int:
    smallest = _SMALLEST[name]
    if text.isascii() and text.isdigit() and len(text) < 10 and (number := int(text)) >= smallest:
        return number
    raise KfjobError(f"{name} is `{text}`, not a whole number from {smallest}", location=name, hint=_HINT)


def check_home_folders(fields: Mapping[str, object]) -> None:
    """Check that every `~` in a spec's fields stands for a folder.

    Raises:
        KfjobError: it stands for that of a user who does not exist.
    """
    for name, value in fields.items():
        if isinstance(value, str) and value.startswith("~"):
            try:
                Path(value).expanduser()
            except RuntimeError as error:
                hint = f"write `./{value}` for a folder of this name"
                raise KfjobError(f"`{value}` names the home folder of no user", location=name, hint=hint) from error


def check_packages(spec: TrainSpec) -> None:
    """Check that the optional packages of the spec are installed, without importing them.

    Raises:
        Refused: one is missing.
    """
    for package in find_packages(spec):
        if package.name not in sys.modules and find_spec(package.name) is None:
            raise package.make_missing()
