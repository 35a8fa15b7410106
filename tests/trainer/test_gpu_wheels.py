"""The wheels that a GPU machine without a network gets."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
ON_THE_MACHINE = ("torch", "transformers", "accelerate")


def test_wheels_for_a_gpu_machine_are_pins_and_complete(fresh_imports) -> None:
    lines = (ROOT / "benchmarks" / "gpu_wheels.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all(pin.url is None and [specifier.operator for specifier in pin.specifier] == ["=="] for pin in pins)
    carried = {canonicalize_name(pin.name) for pin in pins}
    needed = find_dependencies(carried | find_packages_of_the_trainer(fresh_imports.modules))
    assert needed - carried - find_dependencies(set(ON_THE_MACHINE)) == set()


def find_packages_of_the_trainer(modules: list[str]) -> set[str]:
    """Return the trainer's extra, and those of kfjob's other dependencies that the trainer imports."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = read_names(project["optional-dependencies"]["trainer"]) - {"python-etcd"}  # only a rendezvous on etcd needs it
    distributions = packages_distributions()
    imported = {canonicalize_name(name) for module in modules for name in distributions.get(module, ())}
    return extra | (imported & read_names(project["dependencies"]))


def find_dependencies(names: set[str]) -> set[str]:
    """Return the packages and what they need, as far as they are installed here."""
    found: set[str] = set()
    remaining = {str(canonicalize_name(name)) for name in names}
    while remaining:
        name = remaining.pop()
        found.add(name)
        try:
            remaining |= read_names(requires(name) or []) - found
        except PackageNotFoundError:
            continue
    return found


def read_names(requirements: list[str]) -> set[str]:
    """Return the names of the requirements that hold here without extras."""
    parsed = [Requirement(requirement) for requirement in requirements]
    return {str(canonicalize_name(one.name)) for one in parsed if one.marker is None or one.marker.evaluate({"extra": ""})}
