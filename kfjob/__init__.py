"""kfjob: from a job spec to a loss curve, on a Kubernetes cluster or on this machine.

    from kfjob import JobSpec, submit

    run = submit(JobSpec(name="llama", image="…", nodes=2, command="torchrun train.py"))
    print(run.master().pod)
    run.wait(check=True)

`__init__.pyi` lists the public names. Each is imported when it is first used, so `import kfjob` is fast. `kfjob.aio` has the
functions that wait as coroutines.
"""

from __future__ import annotations

_modules: dict[str, str] = {}
"""The module of each public name, from the first use of a name on."""


def __getattr__(name: str) -> object:
    from importlib import import_module

    if not _modules:
        _modules.update(_read_modules())
    if name == "__all__":
        return [*_modules]
    if name == "aio":
        return import_module("kfjob.aio")
    if name not in _modules:
        raise AttributeError(f"module `kfjob` has no attribute `{name}`")
    return getattr(import_module(_modules[name]), name)


def _read_modules() -> dict[str, str]:
    """Return the module of each public name: the stub has a line `from kfjob.MODULE import NAME as NAME` for each."""
    with open(f"{__file__}i", encoding="utf-8") as stub:  # noqa: PTH123 - pathlib takes longer to import than the rest
        lines = [line.split() for line in stub if line.startswith("from kfjob.")]
    return {name: module for _, module, _, name, _, _ in lines}


def __dir__() -> list[str]:
    return sorted(__getattr__("__all__"))
