"""Report which components for training on many nodes an image holds: `kfjob doctor --in-image`, run in the image.

`python3 -m kfjob.image.components` does the same. It needs only the standard library, so it also runs in images without
kfjob's dependencies. A missing component is reported and is no error, because a job on one node needs no EFA. Only a component
that is present and does not load is an error.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.metadata
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

State = Literal["there", "missing", "broken"]

_OFI_PLACES = (
    "opt/amazon/ofi-nccl/lib*",
    "opt/aws-ofi-nccl/lib*",
    "opt/amazon/efa/lib*",
    "usr/local/lib",
    "usr/lib/*-linux-gnu",
)
_LIBRARY_PLACES = ("opt/amazon/efa/lib*", "usr/local/lib", "usr/lib/*-linux-gnu", "usr/local/nccl/lib", "usr/local/cuda/lib64")
_CURRENT_LIBFABRIC = (1, 18)


@dataclass(frozen=True)
class Component:
    """One thing, and what there is of it."""

    name: str
    state: State
    found: str = ""
    hint: str = ""


def list_components(root: Path = Path("/")) -> list[Component]:
    """Everything; `root` is where the file system begins."""
    torch, torch_parts = _torch()
    parts = [Component("python", "there", platform.python_version()), _package("kfjob", "kfjob"), *torch_parts]
    parts += [_nccl(torch, root), _efa(root), _libfabric(root), _aws_ofi_nccl(root), _etcd()]
    return [*parts, _package("transformers", "transformers"), _package("datasets", "datasets")]


def _package(name: str, distribution: str) -> Component:
    try:
        return Component(name, "there", importlib.metadata.version(distribution))
    except importlib.metadata.PackageNotFoundError:
        return Component(name, "missing")


def _torch() -> tuple[Any, list[Component]]:
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError as err:
        if err.name == "torch":
            return None, [
                Component("torch", "missing", hint="TORCH=auto in the Dockerfile installs it"),
                Component("cuda", "missing"),
            ]
        return None, [Component("torch", "broken", str(err))]
    except (ImportError, OSError) as err:
        hint = "LD_LIBRARY_PATH must lead to CUDA's libraries" if "libcuda" in str(err) or "libcu" in str(err) else ""
        return None, [Component("torch", "broken", str(err), hint)]
    try:
        return torch, [Component("torch", "there", str(torch.__version__)), _cuda(torch)]
    except AttributeError as err:  # an empty folder of that name is a module too
        return None, [Component("torch", "broken", str(err))]


def _cuda(torch: Any) -> Component:
    built = torch.version.cuda
    if not built:
        return Component("cuda", "missing", hint="this torch was built without CUDA")
    count = torch.cuda.device_count()
    return Component("cuda", "there", f"{built}, {count} GPUs" if count else f"{built}, no GPU in sight here")


def _nccl(torch: Any, root: Path) -> Component:
    version = _of_library("libnccl.so.2", root, _nccl_version)
    if torch is not None:
        try:
            own = ".".join(map(str, torch.cuda.nccl.version()))
        except (AttributeError, RuntimeError, AssertionError):
            own = ""
        if own:
            return Component("nccl", "there", own + (f" in torch, {version} beside it" if version not in ("", own) else ""))
    return Component("nccl", "there" if version else "missing", version)


def _nccl_version(library: Any) -> str:
    found = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(found))
    major = found.value // 10000 if found.value >= 10000 else found.value // 1000  # noqa: PLR2004 - nccl.h, since 2.9
    rest = found.value - major * (10000 if found.value >= 10000 else 1000)  # noqa: PLR2004
    return f"{major}.{rest // 100}.{rest % 100}"


def _efa(root: Path) -> Component:
    """The installer writes what it installed (aws-efa-installer, /opt/amazon/efa_installed_packages)."""
    file = root / "opt/amazon/efa_installed_packages"
    devices = len(list(root.glob("dev/infiniband/uverbs*")))
    seen = f"{devices} devices" if devices else "no device in sight here"
    if not file.is_file():
        found = seen if devices else ""
        return Component("efa", "missing", found, "nodes with EFA need its user space (libfabric, rdma-core) in the image")
    version = re.search(r"EFA installer version:\s*(\S+)", file.read_text(encoding="utf-8", errors="replace"))
    return Component("efa", "there", f"installer {version[1] if version else 'unknown'}, {seen}")


def _libfabric(root: Path) -> Component:
    version = _of_library("libfabric.so.1", root, _libfabric_version)
    if not version:
        return Component("libfabric", "missing")
    major, minor = map(int, version.split("."))
    older = (major, minor) < _CURRENT_LIBFABRIC
    return Component("libfabric", "there", version, "`network_profile: older` in the spec" if older else "")


def _libfabric_version(library: Any) -> str:
    library.fi_version.restype = ctypes.c_uint32
    found = int(library.fi_version())
    return f"{found >> 16}.{found & 0xFFFF}"


def _of_library(name: str, root: Path, ask: Callable[[Any], str]) -> str:
    places = [str(file) for place in _LIBRARY_PLACES for file in sorted(root.glob(f"{place}/{name}"))]
    for place in (*places, *([name] if root == Path("/") else [])):
        try:
            return ask(ctypes.CDLL(place))
        except (OSError, AttributeError):
            continue
    return ""


def _aws_ofi_nccl(root: Path) -> Component:
    """The plugin says its version in a text that it logs (aws-ofi-nccl, nccl_ofi_net.c)."""
    said = [Path(place) for place in os.environ.get("LD_LIBRARY_PATH", "").split(":") if place and root == Path("/")]
    folders = [*said, *(folder for place in _OFI_PLACES for folder in sorted(root.glob(place)))]
    for folder in folders:
        for file in sorted(folder.glob("libnccl-net*.so*")):
            found = re.search(rb"aws-ofi-nccl (?:v)?(\d+\.\d+[\w.-]*)", file.read_bytes())
            if found:
                return Component("aws-ofi-nccl", "there", found[1].decode())
    return Component("aws-ofi-nccl", "missing", hint="without it NCCL does not use EFA")


def _etcd() -> Component:
    part = _package("python-etcd", "python-etcd")
    if part.state == "missing":
        return Component("python-etcd", "missing", hint="rendezvous `etcd` needs it; `c10d` does not")
    try:
        import etcd  # noqa: F401 - to see that it can be
    except Exception as err:  # noqa: BLE001 - whatever its import does is what a job would see
        return Component("python-etcd", "broken", f"{type(err).__name__}: {err}")
    return part


def format_lines(parts: Sequence[Component]) -> Iterator[str]:
    """For people."""
    width = max(len(part.name) for part in parts)
    for part in parts:
        mark = {"there": "ok", "missing": "--", "broken": "!!"}[part.state]
        said = part.found or ("not in this image" if part.state == "missing" else "")
        yield f"{mark}  {part.name:<{width}}  {said}" + (f"  (hint: {part.hint})" if part.hint else "")


def main(argv: list[str] | None = None) -> int:
    """Tell, and end with 1 if something is broken, or missing although it is required."""
    parser = argparse.ArgumentParser(prog="python3 -m kfjob.image.components", description="What this image has for training.")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    parser.add_argument("--require", action="append", default=[], metavar="NAME", help="what must be there, for example torch")
    said = parser.parse_args(argv)
    parts = list_components()
    if wrong := check_names(parts, said.require):
        parser.error(wrong)
    sys.stdout.write(format_components(parts, said.output) + "\n")
    bad = find_faults(parts, said.require)
    if bad:
        sys.stderr.write(bad + "\n")
    return int(bool(bad))


def check_names(parts: Sequence[Component], required: Sequence[str]) -> str:
    """What is wrong with the names of what must be there; "" if nothing is."""
    names = [part.name for part in parts]
    wrong = sorted(set(required) - set(names))
    return f"unknown: {', '.join(wrong)}; known: {', '.join(names)}" if wrong else ""


def format_components(parts: Sequence[Component], form: str) -> str:
    """All of it, as `text` or `json`."""
    return json.dumps({"parts": [asdict(part) for part in parts]}) if form == "json" else "\n".join(format_lines(parts))


def find_faults(parts: Sequence[Component], required: Sequence[str]) -> str:
    """What is broken, or missing although it is required, as an error; "" if nothing is."""
    bad = [part.name for part in parts if part.state == "broken" or (part.name in required and part.state != "there")]
    return f"error: this image does not have what is needed: {', '.join(bad)}" if bad else ""


if __name__ == "__main__":
    sys.exit(main())
