"""docs/architecture.md shows the layers of the import contract and the folders that exist; no import is a cycle."""

from __future__ import annotations

import re
import subprocess
import tomllib
from graphlib import CycleError, TopologicalSorter

import grimp

from kfjob.objects.api_objects import DEVICE_RESOURCES
from tests.wheels import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def read_contract() -> list[set[str]]:
    """Return the layers of the package, highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (contract,) = [contract for contract in contracts if contract.get("containers") == ["kfjob"]]
    return [set(re.findall(r"\w+", layer)) for layer in contract["layers"]]


def read_figure() -> list[set[str]]:
    """Return the layers of the figure: its rows, of which those with several cells belong together up to the next rule."""
    figure = re.findall(r"```text\n(┌.*?)```", PAGE, re.DOTALL)[0]
    layers: list[set[str]] = []
    columns = 1
    for line in figure.splitlines():
        if line[0] in "┌├└":
            columns = 0
        else:
            inside = re.match(r"│(.*)│", line)
            assert inside
            cells = [cell.strip() for cell in inside[1].split("│")]
            if columns == len(cells) > 1:
                layers[-1] |= set(cells) - {""}
            else:
                layers.append(set(cells) - {""})
            columns = len(cells)
    return layers


def test_figure_has_the_layers_of_the_import_contract():
    assert read_figure() == read_contract()


def test_table_has_every_folder_of_the_package_and_of_the_repository():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    packages = {match[1] for file in files if (match := re.match(r"(kfjob/\w+)/", file))}
    folders = {file.partition("/")[0] for file in files if "/" in file and not file.startswith((".", "kfjob/"))}
    named = re.findall(r"^\| `([\w/]+)` \|", PAGE, re.MULTILINE)
    assert len(named) == len(set(named))
    assert set(named) == packages | folders


def test_folders_that_the_table_mentions_exist():
    rows = re.findall(r"^\| `([\w/]+)` \| (.*) \|$", PAGE, re.MULTILINE)
    named = [ROOT / folder / name for folder, text in rows for name in re.findall(r"`([\w/]+)`", text)]
    assert len(named) >= 3
    assert [str(path) for path in named if not path.is_dir()] == []


def test_names_of_devices_have_one_owner():
    owners = {
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "kfjob").rglob("*.py")
        for resource in DEVICE_RESOURCES
        if f'"{resource}"' in file.read_text("utf-8") or f'.{resource}"' in file.read_text("utf-8")
    }
    assert owners == {"kfjob/objects/api_objects.py"}


def test_modules_have_no_import_cycle():
    """Imports inside functions and those for types only count."""
    graph = grimp.build_graph("kfjob", exclude_type_checking_imports=False)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as err:
        raise AssertionError(" imports ".join(reversed(err.args[1]))) from None
