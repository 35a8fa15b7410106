"""Files that a hostile person prepared: settings, specs, templates, kubeconfigs and folders of saved logs."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from kfjob.api.settings import load_settings
from kfjob.backends import folder
from kfjob.backends.folder import check_name
from kfjob.backends.line_splitter import LINE_BYTES
from kfjob.base.errors import BackendError, SpecError
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot, PodPhase
from kfjob.source.spec_text import load_spec
from kfjob.source.yaml_text import MAX_PROBLEMS
from tests.fakes.backend import FakeBackend
from tests.unit.api import script
from tests.unit.api.conftest import Shell, fake

__all__ = ["fake"]
DEEP = "[" * 60_000
SPEC = "name: train\nimage: a:1\nnodes: 1\ncommand: python a.py\n"


@pytest.fixture
def project(here: Path) -> Path:
    (here / "project" / "deep").mkdir(parents=True)
    return here / "project"


def load(project: Path) -> str | None:
    return load_settings(environ={"XDG_CONFIG_HOME": "/nonexistent"}, folder=project / "deep").namespace


@pytest.mark.parametrize("name", ["kfjob.toml", "pyproject.toml"])
@pytest.mark.parametrize(("mode", "owner"), [(0o666, 0), (0o602, 0), (0o600, 54321)])
def test_settings_that_others_can_change_are_an_error(project: Path, name: str, mode: int, owner: int):
    assert os.getuid() == 0, "the test gives a file to another user"
    file = project / name
    file.write_text('[tool.kfjob]\nnamespace = "a"\n' if name == "pyproject.toml" else 'namespace = "a"\n')
    file.chmod(0o644)
    assert load(project) == "a"
    file.chmod(mode)
    os.chown(file, owner, -1)
    with pytest.raises(SpecError) as caught:
        load(project)
    assert caught.value.title == "the settings file is not safe to use"
    assert caught.value.location == str(file)


@pytest.mark.parametrize(
    "text", ["# see [tool.kfjob]\n", '[tool.other]\nx = "[tool.kfjob]"\n', "[tool]\n", "[project]\nname = 'kfjob'\n"]
)
def test_other_project_file_has_no_settings(project: Path, text: str):
    (project / "kfjob.toml").write_text('namespace = "above"\n')
    (project / "deep" / "pyproject.toml").write_text(text)
    assert load(project) == "above"


@pytest.mark.parametrize("text", ["[tool.kfjob\n", "tool = 5 # kfjob\n", "[tool]\nkfjob = 'a'\n", "[tool.kfjob]\nx\x00\n"])
def test_malformed_settings_are_an_error(project: Path, text: str):
    (project / "pyproject.toml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load(project)
    assert str(project / "pyproject.toml") in (caught.value.location or "")


@pytest.mark.parametrize("command", ["validate FILE", "render --template FILE", "import pytorchjob FILE", "submit FILE"])
def test_deep_yaml_is_an_error(kfjob: Shell, here: Path, command: str):
    (here / "deep.yaml").write_text(f"a: {DEEP}")
    assert kfjob(*command.replace("FILE", "deep.yaml").split()) == 2
    assert "nested too deeply" in kfjob.err


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ('env: {A: "x\\0y"}', "a text holds the character NUL"),
        ('env: {"x\\0y": a}', "a text holds the character NUL"),
        ('env: {A: "x\\ud800y"}', "invalid YAML"),
        ('labels: {a: ["\\udfff"]}', "invalid YAML"),
    ],
)
def test_impossible_character_is_an_error_at_its_position(kfjob: Shell, here: Path, line: str, title: str):
    (here / "job.yaml").write_text(SPEC + line)
    assert kfjob("validate", "job.yaml") == 2
    assert f"error: {title}\n  --> job.yaml:5:" in kfjob.err


def test_bytes_that_are_not_utf8_in_an_option_are_an_error(kfjob: Shell, here: Path):
    (here / "job.yaml").write_text(SPEC)
    assert kfjob("validate", "job.yaml", "--set", "env.A=x\udc80") == 2
    assert "error: a text holds NUL or bytes that are not UTF-8\n  --> --set env.A (env.A)" in kfjob.err


@pytest.mark.parametrize("digits", [40, 4000, 5000])
def test_huge_number_is_one_short_error(kfjob: Shell, here: Path, digits: int):
    (here / "job.yaml").write_text(SPEC.replace("nodes: 1", f"nodes: 1{'0' * digits}"))
    assert kfjob("validate", "job.yaml") == 2
    assert kfjob.err.count("error:") == 1
    assert len(kfjob.err) < 500


@pytest.mark.parametrize("command", ["validate FILE", "render --template FILE", "validate job.yaml --env-file FILE"])
@pytest.mark.parametrize("file", ["large", "/dev/zero"])
def test_large_text_is_an_error(kfjob: Shell, here: Path, command: str, file: str):
    (here / "job.yaml").write_text(SPEC)
    with (here / "large").open("wb") as large:
        large.truncate(1 << 40)  # a hole of 1 TiB
    assert kfjob(*command.replace("FILE", file).split()) == 2
    assert f"`{file}` is larger than 4 MiB" in kfjob.err


NAMES = ["../../etc/cron.d/x", "/etc/passwd", "..", ".", "", ".hidden", "a/b", "a\0b", "a\nb", "-rf", "a" * 300]


@pytest.mark.parametrize("name", NAMES)
def test_name_that_leads_out_of_a_folder_is_an_error(tmp_path: Path, name: str):
    for make_path in (
        lambda: folder.launch_folder(tmp_path, "default", name, "l1"),
        lambda: folder.launch_folder(tmp_path, "default", "train", name),
        lambda: folder.log_path(tmp_path, name),
        lambda: folder.log_path(tmp_path, "pod", name),
    ):
        with pytest.raises(BackendError):
            make_path()
    assert folder.list_launches(tmp_path, "default", name) == []


@pytest.mark.parametrize("name", ["train", "llama3-worker-0", "20261121-083000-ab12", "a.b_c", "x" * 253])
def test_ordinary_name_is_accepted(name: str):
    assert check_name(name) == name


def test_hostile_pod_name_of_a_cluster_is_not_written(kfjob: Shell, fake: FakeBackend, here: Path):
    pod = script.pod(0, PodPhase.RUNNING)
    fake.play("train", script.job(JobPhase.RUNNING), type(pod)(pod="../../../evil", phase=pod.phase))
    assert kfjob("stop", "train") == 1
    assert "cannot be the name of a file" in kfjob.err
    assert not list(here.rglob("*evil*"))


def test_report_of_a_hostile_name_stays_in_this_folder(kfjob: Shell, here: Path):
    root = folder.make_private(here / "saved")
    folder.write_snapshot(root, JobSnapshot(name="../evil", namespace="x", job=JobChanged(phase=JobPhase.FAILED)))
    (root / "a.log").write_text("x\n")
    assert kfjob("report", "--from", "saved") == 1
    assert "cannot be the name of a file" in kfjob.err
    assert not list(here.parent.glob("evil*"))


def test_special_files_in_a_folder_never_hang(kfjob: Shell, here: Path):
    root = folder.make_private(here / "saved")
    for name in ("status.json", "events.json", "pod-1.log"):
        os.mkfifo(root / name)
    (root / "pod-2.log").symlink_to("/dev/zero")
    (root / "loop").symlink_to(root)
    (root / "pod-0.log").write_text("hello\n")
    assert kfjob("status", "--from", "saved") == 1
    assert "`status.json` is not a regular file" in kfjob.err
    (root / "status.json").unlink()
    (root / "events.json").unlink()
    assert kfjob("logs", "--from", "saved", "--all") == 0
    assert "hello" in kfjob.out
    assert json.dumps(kfjob.out).count("pod-2") == 0


@pytest.mark.parametrize("path", ["/dev/zero", "fifo"])
def test_folder_that_is_none_is_an_error(kfjob: Shell, here: Path, path: str):
    os.mkfifo(here / "fifo")
    assert kfjob("status", "--from", path) == 3


def test_report_of_a_deeply_nested_spec_leaves_it_out(kfjob: Shell, tmp_path: Path):
    saved = tmp_path / "saved"
    saved.mkdir()
    folder.write_snapshot(saved, JobSnapshot(name="a", namespace="b", job=JobChanged(phase=JobPhase.FAILED), spec=DEEP))
    assert kfjob("report", "--from", str(saved), "-o", str(tmp_path / "report.html")) == 0


def test_log_names_with_line_feeds_and_foreign_bytes_are_prefixes_of_one_line(kfjob: Shell, tmp_path: Path):
    for name in (b"a\nb.log", b"\xff\xfe.log"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("text\n")
    assert kfjob("logs", "--all", "--from", str(tmp_path)) == 0
    assert [line.rpartition("| ")[2] for line in kfjob.out.splitlines()] == ["text", "text"]


def test_progress_of_a_file_reads_long_lines_in_part(kfjob: Shell, tmp_path: Path):
    file = tmp_path / "a.log"
    file.write_text("step 1 loss 2.0 " + "x" * (64 * LINE_BYTES) + " \n")
    tracemalloc.start()
    try:
        assert kfjob("progress", str(file)) == 0
        assert tracemalloc.get_traced_memory()[1] < 32 * LINE_BYTES
    finally:
        tracemalloc.stop()


def test_many_duplicate_keys_are_said_instead_of_aliases():
    with pytest.raises(SpecError, match="duplicate key `a`") as caught:
        load_spec(SPEC + "env: {" + "a: 1, " * 90_000 + "}")
    assert len(caught.value.problems) == MAX_PROBLEMS


def test_impossible_number_of_processes_is_an_error():
    with pytest.raises(SpecError, match="must be a number from 1 to 4096"):
        load_spec(SPEC + "processes_per_node: 1000000000\n")


def test_saved_log_that_is_no_regular_file_is_an_error(kfjob: Shell, here: Path):
    (here / "logs" / "w-0").mkdir(parents=True)
    (here / "logs" / "w-0" / "pytorch.log").write_text("step 1 loss 2\n")
    os.mkfifo(here / "logs" / "w-0" / "pytorch.previous.log")
    assert kfjob("diagnose", "--from", "logs") != 0
    assert "pytorch.previous.log` cannot be used\n  cause: not a regular file" in kfjob.err
