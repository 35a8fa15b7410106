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

from kfjob.base.parsing import ParseError, read_document
from kfjob.base.text import plural

State = Literal["present", "missing", "broken"]

_OFI_FOLDERS = (
    "opt/amazon/ofi-nccl/lib*",
    "opt/aws-ofi-nccl/lib*",
    "opt/amazon/efa/lib*",
    "usr/local/lib",
    "usr/lib/*-linux-gnu",
)
_LIBRARY_FOLDERS = ("opt/amazon/efa/lib*", "usr/local/lib", "usr/lib/*-linux-gnu", "usr/local/nccl/lib", "usr/local/cuda/lib64")
_CURRENT_LIBFABRIC = (1, 18)


@dataclass(frozen=True)
class Component:
    """A component, and its version or the reason why it does not load."""

    name: str
    state: State
    detail: str = ""
    hint: str = ""


def list_components(root: Path = Path("/")) -> list[Component]:
    """Return all components; `root` is the root of the image's file system."""
    torch, torch_components = _inspect_torch()
    return [
        Component("python", "present", platform.python_version()),
        _inspect_package("kfjob", "kfjob"),
        *torch_components,
        _inspect_nccl(torch, root),
        _inspect_efa(root),
        _inspect_libfabric(root),
        _inspect_aws_ofi_nccl(root),
        _inspect_etcd(),
        _inspect_package("transformers", "transformers"),
        _inspect_package("datasets", "datasets"),
    ]


def _inspect_package(name: str, distribution: str) -> Component:
    try:
        return Component(name, "present", importlib.metadata.version(distribution))
    except importlib.metadata.PackageNotFoundError:
        return Component(name, "missing")


def _inspect_torch() -> tuple[Any, list[Component]]:
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError as err:
        if err.name == "torch":
            hint = "`TORCH=auto` in the Dockerfile installs it"
            return None, [Component("torch", "missing", hint=hint), Component("cuda", "missing")]
        return None, [Component("torch", "broken", str(err))]
    except (ImportError, OSError) as err:
        hint = "add the folder of CUDA's libraries to LD_LIBRARY_PATH" if "libcu" in str(err) else ""
        return None, [Component("torch", "broken", str(err), hint)]
    try:
        return torch, [Component("torch", "present", str(torch.__version__)), _inspect_cuda(torch)]
    except AttributeError as err:  # an empty folder named torch is importable too
        return None, [Component("torch", "broken", str(err))]


def _inspect_cuda(torch: Any) -> Component:
    version = torch.version.cuda
    if not version:
        return Component("cuda", "missing", hint="this torch was built without CUDA")
    count = torch.cuda.device_count()
    return Component("cuda", "present", f"{version}, {plural(count, 'GPU')}" if count else f"{version}, no GPU on this machine")


def _inspect_nccl(torch: Any, root: Path) -> Component:
    version = _read_library_version("libnccl.so.2", root, _read_nccl_version)
    if torch is not None:
        try:
            torch_version = ".".join(map(str, torch.cuda.nccl.version()))
        except (AttributeError, RuntimeError, AssertionError):
            torch_version = ""
        if torch_version:
            other = f" in torch, {version} in the system" if version not in ("", torch_version) else ""
            return Component("nccl", "present", torch_version + other)
    return Component("nccl", "present" if version else "missing", version)


def _read_nccl_version(library: Any) -> str:
    number = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(number))
    scale = 10000 if number.value >= 10000 else 1000  # noqa: PLR2004 - nccl.h, since 2.9
    major, rest = divmod(number.value, scale)
    return f"{major}.{rest // 100}.{rest % 100}"


def _inspect_efa(root: Path) -> Component:
    """Read the version from the installer's record (aws-efa-installer, /opt/amazon/efa_installed_packages)."""
    file = root / "opt/amazon/efa_installed_packages"
    count = len(list(root.glob("dev/infiniband/uverbs*")))
    if not file.is_file():
        hint = "nodes with EFA need its user space (libfabric, rdma-core) in the image"
        return Component("efa", "missing", plural(count, "device") if count else "", hint)
    match = re.search(rb"EFA installer version:\s*(\S+)", _read_file(file))
    version = match[1].decode(errors="replace") if match else "unknown"
    devices = plural(count, "device") if count else "no device on this machine"
    return Component("efa", "present", f"installer {version}, {devices}")


def _inspect_libfabric(root: Path) -> Component:
    version = _read_library_version("libfabric.so.1", root, _read_libfabric_version)
    if not version:
        return Component("libfabric", "missing")
    major, minor = map(int, version.split("."))
    is_older = (major, minor) < _CURRENT_LIBFABRIC
    return Component("libfabric", "present", version, "set `network_profile: older` in the spec" if is_older else "")


def _read_libfabric_version(library: Any) -> str:
    library.fi_version.restype = ctypes.c_uint32
    number = int(library.fi_version())
    return f"{number >> 16}.{number & 0xFFFF}"


def _read_library_version(name: str, root: Path, read: Callable[[Any], str]) -> str:
    files = [str(file) for folder in _LIBRARY_FOLDERS for file in sorted(root.glob(f"{folder}/{name}"))]
    for file in (*files, *([name] if root == Path("/") else [])):
        try:
            return read(ctypes.CDLL(file))
        except (OSError, AttributeError):
            continue
    return ""


def _inspect_aws_ofi_nccl(root: Path) -> Component:
    """Read the version from a log text in the plugin (aws-ofi-nccl, nccl_ofi_net.c)."""
    search_path = [Path(path) for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path and root == Path("/")]
    for folder in (*search_path, *(folder for pattern in _OFI_FOLDERS for folder in sorted(root.glob(pattern)))):
        for file in sorted(folder.glob("libnccl-net*.so*")):
            if match := re.search(rb"aws-ofi-nccl (?:v)?(\d+\.\d+[\w.-]*)", _read_file(file)):
                return Component("aws-ofi-nccl", "present", match[1].decode(errors="replace"))
    return Component("aws-ofi-nccl", "missing", hint="without it NCCL does not use EFA")


def _read_file(file: Path) -> bytes:
    """Return the content of a file; empty if it cannot be read."""
    try:
        return read_document(file)
    except (OSError, ParseError):
        return b""


def _inspect_etcd() -> Component:
    component = _inspect_package("python-etcd", "python-etcd")
    if component.state == "missing":
        return Component("python-etcd", "missing", hint="rendezvous `etcd` needs it, `c10d` does not")
    try:
        import etcd  # noqa: F401 - it may fail
    except Exception as err:  # noqa: BLE001 - a job would fail with it too
        return Component("python-etcd", "broken", f"{type(err).__name__}: {err}")
    return component


def format_lines(components: Sequence[Component]) -> Iterator[str]:
    """Yield a line of text for each component."""
    width = max(len(component.name) for component in components)
    for component in components:
        mark = {"present": "ok", "missing": "--", "broken": "!!"}[component.state]
        detail = component.detail or ("not in this image" if component.state == "missing" else "")
        yield f"{mark}  {component.name:<{width}}  {detail}" + (f"  (hint: {component.hint})" if component.hint else "")


def main(argv: list[str] | None = None) -> int:
    """Print the components; return 1 if one is broken, or missing although it is required."""
    parser = argparse.ArgumentParser(
        prog="python3 -m kfjob.image.components", description="List the components for training in this image."
    )
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    parser.add_argument("--require", action="append", default=[], metavar="NAME", help="required component, for example torch")
    arguments = parser.parse_args(argv)
    components = list_components()
    if message := explain_unknown_names(components, arguments.require):
        parser.error(message)
    sys.stdout.write(format_components(components, arguments.output) + "\n")
    message = explain_faults(components, arguments.require)
    if message:
        sys.stderr.write(message + "\n")
    return int(bool(message))


def explain_unknown_names(components: Sequence[Component], required: Sequence[str]) -> str:
    """Return the message about required names that are no components; "" if there are none."""
    names = [component.name for component in components]
    unknown = sorted(set(required) - set(names))
    return f"unknown component: {', '.join(unknown)}; components are: {', '.join(names)}" if unknown else ""


def format_components(components: Sequence[Component], output: str) -> str:
    """Return all components as `text` or `json`."""
    if output == "json":
        return json.dumps({"components": [asdict(component) for component in components]})
    return "\n".join(format_lines(components))


def explain_faults(components: Sequence[Component], required: Sequence[str]) -> str:
    """Return the error about components that are broken, or missing although they are required; "" if there are none."""
    names = [
        component.name
        for component in components
        if component.state == "broken" or (component.name in required and component.state == "missing")
    ]
    return f"error: missing or broken in this image: {', '.join(names)}" if names else ""


if __name__ == "__main__":
    sys.exit(main())
