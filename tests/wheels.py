"""The wheel of this checkout, and wheels of installed distributions, so that tests install packages without a network."""

from __future__ import annotations

import email.parser
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


def list_needs(wheel: Path, extra: str = "") -> set[str]:
    """Return the installed distributions that a wheel needs, with those that they need."""
    with ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.parser.Parser().parsestr(archive.read(name).decode())
    return list_closure(_select_needs(metadata.get_all("Requires-Dist", []), {extra}))


def list_closure(requirements: Iterable[str]) -> set[str]:
    """Return the installed distributions that meet these requirements, and those that they need."""
    seen: set[tuple[str, str]] = set()
    waiting = list(requirements)
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        new = {(name, extra) for extra in ("", *requirement.extras)} - seen
        seen |= new
        if new:
            waiting += _select_needs(importlib.metadata.requires(name) or (), {extra for _, extra in new})
    return {name for name, _ in seen}


def _select_needs(requirements: Iterable[str], extras: set[str]) -> list[str]:
    """Return the requirements that count here, without their markers."""
    needs = [Requirement(text) for text in requirements]
    chosen = [need for need in needs if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras)]
    return [f"{need.name}[{','.join(need.extras)}]" for need in chosen]


def link_installed(names: Iterable[str], environment: Path) -> None:
    """Put links to installed distributions into an environment."""
    (packages,) = environment.glob("lib/python*/site-packages")
    for name in names:
        distribution = importlib.metadata.distribution(name)
        parts = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
        for part in parts:
            if not (packages / part).exists():
                (packages / part).symlink_to(Path(str(distribution.locate_file(part))))


def pack_installed(names: Iterable[str], folder: Path) -> None:
    """Write a wheel for each installed distribution. Installers make the programs of its entry points again."""
    for name in names:
        distribution = importlib.metadata.distribution(name)
        tags = [tag.split("-") for tag in re.findall(r"^Tag: (\S+)$", distribution.read_text("WHEEL") or "", re.MULTILINE)]
        tag = "-".join(".".join(dict.fromkeys(parts)) for parts in zip(*tags, strict=True))  # such as py2.py3-none-any
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
