"""The programs that the scripts and the tests call are on a minimal machine, or scripts/packages installs them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.scripts.commands import ROOT, Script, builtins, packaged, python_commands
from tests.scripts.minimal_root import PROGRAMS

HARNESS = ROOT / "tests" / "cluster" / "harness"
ENVIRONMENT = {path.name for path in Path(sys.executable).parent.iterdir()}  # scripts/env makes it
USE_ENVIRONMENT = {"test", "quickstart"}  # these scripts put it on PATH
OPTIONAL = {
    "modprobe": "a kernel whose modules are loaded or built in needs none",
    "go": "scripts/cluster takes the wheel of the Python package index where there is none",
}
RUNNERS = {"exec", "command", "env", "find", "nice", "nsenter", "setsid", "timeout", "unshare", "xargs"}
NOT_PROGRAMS = {"push-image", "kfjob"}  # an argument of kfjob in a variable; the folder of `find kfjob`
ARGUMENTS = {  # of programs that the scripts start through others, whatever this machine has by the same name
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns", "kwok"),
    *("registry", "registry-node", "image", "k8s.io", "list", "serve"),  # names of components, images and subcommands
    *("req", "x509", "ec", "ecparam", "prime256v1", "ruleset", "cgroup.procs", "overlay", "slave", "d", "f"),
}


def select_unavailable(names: set[str], *groups: str) -> list[str]:
    """The names that a fresh machine lacks after the installation of these groups; paths are files of the project or POSIX."""
    return sorted({name for name in names if "/" not in name} - PROGRAMS - {*packaged(*groups)} - set(OPTIONAL))


def environment_of(script: Path) -> set[str]:
    """The programs of the Python environment, for a script that has it on PATH."""
    return ENVIRONMENT if script.name in USE_ENVIRONMENT else set()


def union(names: list[set[str]]) -> set[str]:
    return set[str]().union(*names)


@pytest.fixture(scope="module")
def scripts() -> dict[Path, Script]:
    own = [path for path in (ROOT / "scripts").iterdir() if path.read_text(encoding="utf-8").startswith("#!/usr/bin/env bash")]
    paths = [ROOT / ".ci" / "run", *own, *HARNESS.glob("*.sh")]
    return {path: Script(path.read_text(encoding="utf-8")) for path in paths}


@pytest.fixture(scope="module")
def functions(scripts: dict[Path, Script]) -> dict[Path, set[str]]:
    """By script, the functions that it can call: its own, and all of the harness within the harness."""
    harness = {path for path in scripts if path.parent == HARNESS or path.name == "cluster"}
    shared = union([scripts[path].functions() for path in harness])
    return {path: shared if path in harness else script.functions() for path, script in scripts.items()}


@pytest.fixture(scope="module")
def words(scripts: dict[Path, Script], functions: dict[Path, set[str]]) -> set[str]:
    """Words that a script may run through another program: with them come options' values and names of components."""
    runners = set(RUNNERS)
    while more := union([script.runners(runners) for script in scripts.values()]) - runners:
        runners |= more
    own = {path: script.words_after(runners, functions[path]) - functions[path] for path, script in scripts.items()}
    return union([found - environment_of(path) for path, found in own.items()]) - {"exec", "command"}


@pytest.fixture(scope="module")
def tests() -> dict[str, set[str]]:
    """By file, what each test module starts."""
    paths = (ROOT / "tests").glob("**/*.py")
    return {str(path.relative_to(ROOT)): python_commands(path.read_text(encoding="utf-8")) for path in paths}


def test_scripts_call_only_available_programs(scripts, functions):
    for path, script in scripts.items():
        programs = script.commands() - functions[path] - builtins() - environment_of(path)
        assert select_unavailable(programs, "cluster") == [], path.name


def test_scripts_start_only_available_programs_through_others(words):
    assert {"nft", "umount", "sha256sum"} <= words
    assert select_unavailable(words - NOT_PROGRAMS - ARGUMENTS, "cluster") == []
    assert sorted(ARGUMENTS - words) == []


def test_tests_start_only_available_programs(tests):
    assert {"docker-registry", "openssl", "chromium-headless-shell"} <= union(list(tests.values()))
    for name, programs in tests.items():
        groups = ("tests", "cluster") if name.startswith(("tests/cluster", "tests/scripts")) else ("tests",)
        assert select_unavailable(programs - NOT_PROGRAMS - ENVIRONMENT, *groups) == [], name


def test_subprocess_is_imported_as_a_module_so_that_its_calls_are_seen():
    paths = [
        path for path in (ROOT / "tests").glob("**/*.py") if "\nfrom subprocess import" in path.read_text(encoding="utf-8")
    ]
    assert paths == []


def test_the_list_of_a_minimal_machine_names_only_what_is_called(scripts, words, tests):
    called = union([words, *tests.values(), *(script.commands() for script in scripts.values())])
    assert sorted(PROGRAMS - called) == []


def test_commands_of_every_form_are_seen():
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
