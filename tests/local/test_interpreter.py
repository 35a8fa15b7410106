"""Which Python and torchrun a job on this machine gets: those of the user, not those that kfjob was installed with."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kfjob.api.recorded_config import read_observe_config
from kfjob.backends import folder
from kfjob.backends.base import JobRef
from kfjob.base.errors import Refused
from kfjob.joblog.events import JobPhase
from kfjob.local import temporary
from kfjob.local.backend import LocalBackend
from kfjob.local.installer import find_installer
from kfjob.local.interpreter import Interpreter
from kfjob.trainspec import OWN_TRAINER
from tests.local.conftest import Here

OWN = Path(sys.executable).parent
SHOW = """#!/bin/sh
echo "program $0"; echo "PATH $PATH"
"""
TRAIN = ("torchrun", "-m", OWN_TRAINER, "--max-steps=1")


def read_first_line(here: Here, ref: JobRef, index: int = 0) -> str:
    """Wait for the first line of a pod, and return it."""
    here.until(lambda: here.texts(ref, index))
    return here.texts(ref, index)[0]


def make_environment(folder: Path, *names: str, code: str = SHOW) -> Path:
    """Make a virtual environment's folder with these programs, which are scripts."""
    (folder / "bin").mkdir(parents=True)
    for name in names:
        (folder / "bin" / name).write_text(code)
        (folder / "bin" / name).chmod(0o755)
    return folder


def test_programs_are_those_of_the_users_path_and_own_ones_come_last(tmp_path: Path):
    user = make_environment(tmp_path / "user", "python3", "torchrun") / "bin"
    find = Interpreter().find_program
    assert find(("python3", "x.py"), str(user)) == str(user / "python3")
    assert find(("torchrun", "x.py"), str(user)) == str(user / "torchrun")
    assert find(("torchrun", "x.py"), str(tmp_path)) == str(OWN / "torchrun")
    path = Interpreter().search_path(f"{user}{os.pathsep}/bin", ("python3", "x.py"))
    assert path.split(os.pathsep) == [str(user), "/bin", str(OWN)]


def test_own_trainer_runs_with_own_python_where_that_has_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    user = make_environment(tmp_path / "user", "python3", "torchrun") / "bin"
    assert Interpreter().find_program(TRAIN, str(user)) == str(OWN / "torchrun")
    tool = make_environment(tmp_path / "tool", "python", "kfjob") / "bin" / "python"  # kfjob without torch, as `uv tool` has it
    monkeypatch.setattr("kfjob.local.interpreter.OWN", tool)
    assert Interpreter().find_program(TRAIN, str(OWN)) == str(OWN / "torchrun")
    bare = make_environment(tmp_path / "bare", "torchrun", "python", code="#!/bin/sh\nexit 1\n") / "bin"
    with pytest.raises(Refused, match=r"`.*/bare/bin/python` does not have kfjob") as error:
        Interpreter().find_program(TRAIN, str(bare))
    assert "kfjob[trainer]" in str(error.value.hint)


@pytest.mark.parametrize("name", ["chosen", "chosen/bin/python", "link"])
def test_a_chosen_python_brings_its_programs(tmp_path: Path, name: str):
    chosen = make_environment(tmp_path / "chosen", "python", "torchrun") / "bin"
    (tmp_path / "link").symlink_to("chosen")
    folder = tmp_path / "link" / "bin" if name == "link" else chosen
    user = make_environment(tmp_path / "user", "python3", "torchrun", "accelerate") / "bin"
    interpreter = Interpreter(chosen=tmp_path / name)
    assert interpreter.find_program(("python3", "x.py"), str(user)) == str(folder / "python")
    assert interpreter.find_program(("torchrun", "x.py"), str(user)) == str(folder / "torchrun")
    assert interpreter.search_path(str(user), ("bash",)).split(os.pathsep) == [str(folder), str(user), str(OWN)]
    with pytest.raises(Refused, match=r"`accelerate` is not beside `.*/bin/python`"):
        interpreter.find_program(("accelerate", "launch", "x.py"), str(user))


def test_a_chosen_python_that_does_not_exist_is_refused(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").touch()
    for name in ("nothing", "empty", "text"):
        with pytest.raises(Refused, match=rf"no Python at `.*/{name}`"):
            Interpreter(chosen=tmp_path / name).find_program(("python", "x.py"), "/bin")


@pytest.mark.parametrize(("code", "cause"), [("no heading", "Exec format error"), ("#!/bin/sh\nsleep 70\n", "did not end")])
def test_a_chosen_python_that_does_not_answer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, cause: str
):
    monkeypatch.setattr("kfjob.local.interpreter._IMPORT_SECONDS", 1)
    chosen = make_environment(tmp_path / "chosen", "python", "torchrun", code=code)
    with pytest.raises(Refused, match="does not work as a Python") as error:
        Interpreter(chosen=chosen).find_program(TRAIN, "/bin")
    assert cause in str(error.value.cause)


def test_the_search_for_the_trainer_runs_nothing_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "importlib").mkdir()
    (tmp_path / "importlib" / "__init__.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    (tmp_path / "kfjob").mkdir()
    monkeypatch.chdir(tmp_path)
    chosen = make_environment(tmp_path / "chosen", "torchrun")
    (chosen / "bin" / "python").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(Refused, match="does not have kfjob"):
        Interpreter(chosen=chosen).find_program(TRAIN, "/bin")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "mode", "title", "hint"),
    [
        ("train.py", 0o755, "`train.py` is a file, not a program", "write `python train.py`, or `torchrun train.py`"),
        ("run.sh", 0o755, "`run.sh` is a file, not a program", "./run.sh"),
        ("run.sh", 0o644, "`run.sh` is a file, not a program", "chmod +x run.sh"),
        ("other", None, "program `other` is not on this machine", "install it"),
    ],
)
def test_a_file_is_not_a_missing_program(tmp_path: Path, name: str, mode: int | None, title: str, hint: str):
    if mode is not None:
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    with pytest.raises(Refused) as error:
        Interpreter().find_program((name,), "/bin", folder=str(tmp_path))
    assert error.value.title == title
    assert hint in str(error.value.hint)


@pytest.mark.parametrize("folder", ["", "sub"])
@pytest.mark.parametrize("name", ["./go.sh", "bin/go.sh", "./bin/../go.sh"])
def test_a_program_with_a_folder_is_not_searched_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, name: str
):
    make_environment(tmp_path / folder, "go.sh")
    (tmp_path / folder / "go.sh").symlink_to("bin/go.sh")
    monkeypatch.chdir(tmp_path)
    program = Interpreter().find_program((name,), "/bin", folder=folder)
    assert Path(program).is_absolute()
    assert Path(program).samefile(tmp_path / folder / "go.sh")


@pytest.mark.local
def test_a_job_runs_with_the_chosen_python_and_its_children_find_it(here: Here, tmp_path: Path):
    chosen = make_environment(tmp_path / "chosen", "python", "torchrun")
    backend = LocalBackend(state=here.state, python=chosen)
    ref = backend.submit(here.plan(command=["torchrun", "--version"]))
    assert here.end(ref).job.phase is JobPhase.SUCCEEDED
    program, path = here.texts(ref)
    assert program == f"program {chosen / 'bin' / 'torchrun'}"
    folders = path.removeprefix("PATH ").split(os.pathsep)
    assert folders[0] == str(chosen / "bin")
    assert str(OWN) in folders


@pytest.mark.local
def test_each_pod_has_its_own_temporary_folder_until_the_job_ends(here: Here, tmp_path: Path):
    go = tmp_path / "go"
    code = (
        "import os, pathlib, tempfile, time\n"
        "print(tempfile.gettempdir(), oct(os.stat(tempfile.gettempdir()).st_mode & 0o777), flush=True)\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.02)"
    )
    ref = here.submit(code, nodes=2, launcher=None)
    folders, modes = zip(*(read_first_line(here, ref, index).split() for index in range(2)), strict=True)
    assert len({*folders}) == 2
    assert {*modes} == {"0o700"}
    assert all(Path(path).is_dir() for path in folders)
    go.touch()
    assert here.end(ref).job.phase is JobPhase.SUCCEEDED
    assert not any(Path(path).exists() for path in folders)


@pytest.mark.local
def test_the_temporary_folders_of_a_killed_supervisor_are_removed_by_stop(here: Here):
    ref = here.submit("import tempfile, time\nprint(tempfile.gettempdir(), flush=True)\ntime.sleep(600)")
    path = Path(read_first_line(here, ref))
    os.kill(here.supervisor(ref), 9)
    here.backend.stop(ref, timeout=60)
    assert not path.exists()


@pytest.mark.parametrize("content", ["{precious}", "\udcff", "relative/kfjob-u-1", "FIFO", "LINK"])
def test_the_file_with_the_temporary_folder_cannot_remove_others(tmp_path: Path, content: str):
    run = tmp_path / folder.RUN
    run.mkdir()
    precious = tmp_path / "kfjob-other-precious"
    precious.mkdir()
    file = run / temporary.FILE
    if content == "FIFO":
        os.mkfifo(file)
    elif content == "LINK":
        (tmp_path / "kfjob-uid-1").symlink_to(precious)
        file.write_text(str(tmp_path / "kfjob-uid-1"))
    else:
        file.write_bytes(content.format(precious=precious).encode(errors="surrogateescape"))
    temporary.remove_folders(tmp_path, uid="uid")
    assert precious.is_dir()


@pytest.mark.local
def test_a_spec_sets_its_own_temporary_folder(here: Here, tmp_path: Path):
    ref = here.submit("import os; print(os.environ['TMPDIR'])", env={"TMPDIR": str(tmp_path)})
    here.end(ref)
    assert here.texts(ref) == [str(tmp_path)]


def test_installer_fits_the_environment_of_the_job(tmp_path: Path):
    bare = make_environment(tmp_path / "a b" / ".venv", "python")
    python = bare / "bin" / "python"
    starter = bare / "bin" / "torchrun"
    starter.write_text(f"#!{tmp_path}/other/bin/python3\n")
    assert find_installer(python) == f"uv pip install --python '{python}'"
    assert find_installer(starter) == f"uv pip install --python {tmp_path}/other/bin/python3"
    (bare / "lib" / "python3.12" / "site-packages" / "pip").mkdir(parents=True)
    assert find_installer(python) == f"'{python}' -m pip install"
    assert find_installer(Path("/usr/bin/uv")) == "uv add"
    assert find_installer(Path("/bin/bash")) == ""


def test_hint_of_a_missing_module_uses_the_installer_of_the_job(here: Here, tmp_path: Path):
    python = make_environment(tmp_path / "user", "python", code="#!/bin/sh\nexit 1\n") / "bin" / "python"
    snapshot = here.end(here.backend.submit(here.plan(command=[str(python), "-c", "pass"])))
    assert read_observe_config(snapshot).installer == f"uv pip install --python {python}"
