"""Scripts and tests call only programs of a minimal machine or of scripts/packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.scripts.commands import ROOT, Script, builtins, packaged, python_commands
from tests.scripts.minimal_root import PROGRAMS

HARNESS = ROOT / "tests" / "cluster" / "harness"
ENVIRONMENT = {path.name for path in Path(sys.executable).parent.iterdir()}  # scripts/env creates it
USE_ENVIRONMENT = {"test", "quickstart"}  # these scripts add it to PATH
OPTIONAL = {
    "modprobe": "not needed if the kernel's modules are loaded or built in",
    "go": "scripts/cluster installs a wheel of the Python package index if it is missing",
}
RUNNERS = {"exec", "command", "env", "find", "nice", "nsenter", "setsid", "timeout", "unshare", "xargs"}
NOT_PROGRAMS = {"push-image", "kfjob"}  # an argument of kfjob in a variable; the folder in `find kfjob`
ARGUMENTS = {  # arguments of programs that scripts start through others; they are not programs
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns", "kwok"),
    *("registry", "registry-node", "image", "k8s.io", "list", "serve"),  # components, images and subcommands
    *("req", "x509", "ec", "ecparam", "prime256v1", "ruleset", "cgroup.procs", "overlay", "slave", "d", "f"),
}


def select_unavailable(names: set[str], *groups: str) -> list[str]:
    """Return the names that a fresh machine lacks after the installation of these groups; paths do not count."""
    return sorted({name for name in names if "/" not in name} - PROGRAMS - {*packaged(*groups)} - set(OPTIONAL))


def environment_of(script: Path) -> set[str]:
    """Return the programs of the Python environment if the script has it on PATH."""
    return ENVIRONMENT if script.name in USE_ENVIRONMENT else set()


def union(names: list[set[str]]) -> set[str]:
    return set[str]().union(*names)


@pytest.fixture(scope="module")
def scripts() -> dict[Path, Script]:
    entry_points = [
        path
        for path in (ROOT / "scripts").iterdir()
        if path.is_file() and path.read_text(encoding="utf-8").startswith("#!/usr/bin/env bash")
    ]
    paths = [ROOT / ".ci" / "run", *entry_points, *HARNESS.glob("*.sh")]
    return {path: Script(path.read_text(encoding="utf-8")) for path in paths}


@pytest.fixture(scope="module")
def functions(scripts: dict[Path, Script]) -> dict[Path, set[str]]:
    """Return the functions that each script can call: its own, and in the harness those of all its files."""
    harness = {path for path in scripts if path.parent == HARNESS or path.name == "cluster"}
    shared = union([scripts[path].functions() for path in harness])
    return {path: shared if path in harness else script.functions() for path, script in scripts.items()}


@pytest.fixture(scope="module")
def runner_words(scripts: dict[Path, Script], functions: dict[Path, set[str]]) -> set[str]:
    """Return the words that scripts may run through another program, including option values and component names."""
    runners = set(RUNNERS)
    while new_runners := union([script.runners(runners) for script in scripts.values()]) - runners:
        runners |= new_runners
    words_by_script = {path: script.words_after(runners, functions[path]) - functions[path] for path, script in scripts.items()}
    return union([candidates - environment_of(path) for path, candidates in words_by_script.items()]) - {"exec", "command"}


@pytest.fixture(scope="module")
def tests() -> dict[str, set[str]]:
    """Return the programs that each test module starts."""
    paths = (ROOT / "tests").glob("**/*.py")
    return {str(path.relative_to(ROOT)): python_commands(path.read_text(encoding="utf-8")) for path in paths}


def test_scripts_call_only_available_programs(scripts, functions):
    for path, script in scripts.items():
        programs = script.commands() - functions[path] - builtins() - environment_of(path)
        assert select_unavailable(programs, "cluster") == [], path.name


def test_scripts_start_only_available_programs_through_others(runner_words):
    assert {"nft", "umount", "sha256sum"} <= runner_words
    assert select_unavailable(runner_words - NOT_PROGRAMS - ARGUMENTS, "cluster") == []
    assert sorted(ARGUMENTS - runner_words) == []


def test_tests_start_only_available_programs(tests):
    assert {"docker-registry", "openssl", "chromium-headless-shell"} <= union(list(tests.values()))
    for name, programs in tests.items():
        groups = ("tests", "cluster") if name.startswith(("tests/cluster", "tests/scripts")) else ("tests",)
        assert select_unavailable(programs - NOT_PROGRAMS - ENVIRONMENT, *groups) == [], name


def test_tests_import_subprocess_as_a_module():
    paths = [
        path for path in (ROOT / "tests").glob("**/*.py") if "\nfrom subprocess import" in path.read_text(encoding="utf-8")
    ]
    assert paths == []


def test_minimal_root_lists_only_called_programs(scripts, runner_words, tests):
    called = union([runner_words, *tests.values(), *(script.commands() for script in scripts.values())])
    assert sorted(PROGRAMS - called) == []


def test_script_finds_commands_of_every_form():
    script = Script(
        """
        run() { "$@"; }
        a | b "$(c)" && { d >file || ! e; }
        "f" "g h"
        in_namespace() { nsenter --target "$1" -- "$@"; }
        in_namespace bash -euc 'i; x=$(j)' && run k --option
        case $x in y) l ;; esac
        cat <<END
        $(m)
        END
    """.replace("\n        ", "\n")
    )
    assert script.functions() == {"run", "in_namespace"}
    assert script.commands() - {"in_namespace", "run", "nsenter", "cat"} == set("abcdefijlm")
    assert script.runners({"nsenter"}) == {"run", "in_namespace"}
    assert script.words_after({"run", "in_namespace", "nsenter"}, set()) >= {"bash", "k"}
