"""The wheel of this checkout, and wheels of installed distributions, so that tests install packages without a network."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from zipfile import ZipFile

from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
_LEFT_OUT = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"}
"""Files of `.dist-info` that an installer writes."""


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout in a folder, without a network."""
    (file,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return Path(file)


def list_closure(names: Iterable[str], extra: str = "") -> set[str]:
    """Return the installed distributions that these need. An extra counts for them, not for what they need."""
    found: set[str] = set()
    waiting = [(name, extra) for name in names]
    while waiting:
        name, with_extra = waiting.pop()
        name = canonicalize_name(name)
        if name in found:
            continue
        found.add(name)
        needs = map(Requirement, importlib.metadata.requires(name) or ())
        waiting += [(need.name, "") for need in needs if need.marker is None or need.marker.evaluate({"extra": with_extra})]
    return found


def pack_installed(names: Iterable[str], folder: Path) -> None:
    """Write a wheel for each installed distribution. Installers make the programs of its entry points again."""
    for name in names:
        distribution = importlib.metadata.distribution(name)
        tag = re.findall(r"^Tag: (\S+)$", distribution.read_text("WHEEL") or "", re.MULTILINE)[0]
        stem = f"{re.sub(r'[-_.]+', '_', distribution.name)}-{distribution.version}"
        with ZipFile(folder / f"{stem}-{tag}.whl", "w") as wheel:
            packed = []
            for file in _list_files(distribution):
                wheel.write(str(distribution.locate_file(file)), file)
                packed.append(f"{file},,\n")
            info = next(line for line in packed if ".dist-info/METADATA" in line).partition("/")[0]
            wheel.writestr(f"{info}/RECORD", "".join([*packed, f"{info}/RECORD,,\n"]))


def _list_files(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    for file in distribution.files or ():
        written = file.parts[0].endswith(".dist-info") and file.name in _LEFT_OUT
        if ".." not in file.parts and "__pycache__" not in file.parts and not written:
            yield str(file)
