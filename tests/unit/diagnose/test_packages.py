"""The package that a hint names for a missing module, and the command that installs it."""

from __future__ import annotations

from importlib.metadata import packages_distributions

import pytest

from kfjob.joblog.diagnose.engine.python_packages import ANY_PACKAGE, find_package
from kfjob.joblog.events import Event, JobChanged, JobPhase
from kfjob.joblog.observe_config import ObserveConfig
from tests.unit.diagnose.cases import find_cause, line


def find_hint(module: str, *, local: bool, installer: str = "") -> str:
    events: list[Event] = [line(f"ModuleNotFoundError: No module named '{module}'", 1), JobChanged(phase=JobPhase.FAILED)]
    first = find_cause(events, local=local, config=ObserveConfig(installer=installer))
    return first.remedy


def test_hint_names_the_package_and_the_installer_of_the_job():
    assert "`/v/bin/python -m pip install opencv-python-headless`" in find_hint(
        "cv2", local=True, installer="/v/bin/python -m pip install"
    )
    assert "`pip install opencv-python-headless`" in find_hint("cv2", local=True)
    assert "`pip install pyyaml` in the Dockerfile" in find_hint("yaml", local=False, installer="uv add")


def test_braces_in_a_path_stay():
    assert "`/{v}/python -m pip install pillow`" in find_hint("PIL", local=True, installer="/{v}/python -m pip install")


@pytest.mark.parametrize("module", ["my_models", "utils"])
def test_module_that_no_package_is_known_for_gets_no_name(module: str):
    assert find_package(module) == ANY_PACKAGE
    assert f"`uv add {ANY_PACKAGE}`" in find_hint(module, local=True, installer="uv add")


def test_names_are_those_of_the_installed_packages():
    installed = {module: {name.lower() for name in names} for module, names in packages_distributions().items()}
    named = {module: find_package(module) for module in installed if find_package(module) != ANY_PACKAGE}
    assert len(named) > 20
    normal = {module: {name.replace("_", "-") for name in names} for module, names in installed.items()}
    assert {module: name for module, name in named.items() if name.lower().replace("_", "-") not in normal[module]} == {}
