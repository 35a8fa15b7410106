"""Whatever the records of a job hold, every command gives a result or one error, and nothing of the job is lost.

The records are annotations of a live job, which everyone with access to the job may edit, and files of the archive. A record
may be truncated, of another type, deep, large, or of an older kfjob.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfjob.backends import folder
from kfjob.objects import api_objects
from tests.unit.api.conftest import Shell
from tests.unit.api.script import block, progress
from tests.unit.changes import changes
from tests.unit.cli.object_server import ObjectServer

KEY = ("default", "pytorchjobs", "train")
SPEC = """\
name: train
image: registry.invalid/a@sha256:0000000000000000000000000000000000000000000000000000000000000000
nodes: 2
command: torchrun train.py
env: {A: b}
volumes: [{name: data, mount_path: /data, pvc: shared}]
overrides: {spec: {runPolicy: {ttlSecondsAfterFinished: 60}}}
"""
RECORDS = (
    api_objects.ANNOTATION_SPEC, api_objects.ANNOTATION_SPEC_VERSION, api_objects.ANNOTATION_OBSERVE_CONFIG,
    api_objects.ANNOTATION_MANIFEST,
)  # fmt: skip
ODD_TEXTS = {
    "empty": "", "not JSON": "name: train", "a list": "[]", "a number": "5", "null": "null", "deep": "[" * 100_000,
    "deep and closed": '{"a":' * 300 + "1" + "}" * 300, "large": json.dumps({"name": "a" * 1_000_000}), "digits": "1" * 5000,
    "half a surrogate": r'{"name": "\ud800"}', "escapes": json.dumps({"name": "\x1b]0;owned\x07\r\nerror: x"}),
    "unknown field": '{"name": "train", "no": 1}', "newer": '{"version": 99, "name": "train", "new": {}}',
    "overrides of nothing": '{"name": "train", "image": "a:1", "command": ["a"], "overrides": {"status": {}}}',
    "another job": '{"name": "victim", "image": "a:1", "command": ["a"]}',
    "objects of nothing": "[null, 5, {}]", "objects without names": '[{"kind": "PyTorchJob", "apiVersion": "a"}]',
    "two jobs": json.dumps([{"kind": "PyTorchJob", "apiVersion": "kubeflow.org/v1", "metadata": {"name": "train"}}] * 2),
    "object of another": '[{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "victim"}}]',
}  # fmt: skip
READING = [
    "status train", "master train", "logs train --all", "diagnose train", "list", "report train -o page.html --overwrite",
    "import pytorchjob stored.json", "diff job.yaml", "wait train --timeout 0",
]  # fmt: skip
CHANGING = ["relaunch train", "apply job.yaml"]
EXAMPLES = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
MAX_MESSAGE = 5000


@pytest.fixture
def job(kfjob: Shell, cluster: ObjectServer, here: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the PyTorchJob that a submit has created."""
    monkeypatch.setattr("kfjob.api.lifecycle.preparation.check_job_images", lambda *_args, **_options: None)
    (here / "job.yaml").write_text(SPEC)
    assert kfjob("submit", "job.yaml", "--backend", "kubernetes") == 0, kfjob.err
    return cluster.objects[KEY]


def run(kfjob: Shell, command: str) -> int:
    """Run a command; check that it gives a result or one short error without control characters."""
    code = kfjob(*command.split(), *(["--backend", "kubernetes"] if "--from" not in command else []))
    errors = [line for line in kfjob.err.splitlines() if line.startswith("error:")]
    expected = range(1) if code == 0 else range(1, 2) if code in (1, 3, 4, 5) else range(100)  # of a spec, all problems
    assert len(errors) in expected, (command, code, kfjob.err)
    assert len(kfjob.err) < MAX_MESSAGE, (command, kfjob.err[:500])
    assert "\x1b]" not in kfjob.err + kfjob.out, command
    return code


def check_commands(kfjob: Shell, cluster: ObjectServer, record: str, text: str) -> None:
    """Run every command on the job with a record of this text; a command that fails leaves the job as it was."""
    original = copy.deepcopy(cluster.objects)
    stored = cluster.objects[KEY]["metadata"]["annotations"]
    if record == api_objects.ANNOTATION_MANIFEST:
        stored.pop(api_objects.ANNOTATION_SPEC)  # a job has one of both
    stored[record] = text
    Path("stored.json").write_text(json.dumps(cluster.objects[KEY]))
    before = copy.deepcopy(cluster.objects)
    try:
        for command in READING:
            run(kfjob, command)
            assert cluster.objects == before, command
        for command in CHANGING:
            code = run(kfjob, command)
            assert set(cluster.objects) == set(before), f"{command} changes no other object"
            assert code == 0 or cluster.objects == before, (command, kfjob.err)
            cluster.objects.clear()
            cluster.objects.update(copy.deepcopy(before))
    finally:
        cluster.objects.clear()
        cluster.objects.update(original)


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS.keys())
def test_odd_annotation_is_an_error_or_ignored(kfjob: Shell, cluster: ObjectServer, text: str):
    for record in RECORDS:
        check_commands(kfjob, cluster, record, text)


def test_record_of_another_job_starts_nothing(kfjob: Shell, cluster: ObjectServer, job: dict[str, Any]):
    job["metadata"]["annotations"][api_objects.ANNOTATION_SPEC] = ODD_TEXTS["another job"]
    assert run(kfjob, "relaunch train") == 1
    assert "the recorded spec of job `train` cannot be used" in kfjob.err
    assert "it is the spec of `victim`" in kfjob.err
    assert set(cluster.objects) == {KEY}


def truncations(text: str) -> st.SearchStrategy[str]:
    return st.integers(0, len(text) - 1).map(lambda end: text[:end])


WRONG: tuple[Any, ...] = (None, True, 0, -1, 10**30, 1e300, "", "x", "\0", "9" * 5000, [], [None], {}, {"a": []})


def change_text(text: str) -> st.SearchStrategy[str]:
    return changes(json.loads(text), WRONG).map(json.dumps)


def test_changed_annotation_is_an_error_or_ignored(kfjob: Shell, cluster: ObjectServer, job: dict[str, Any]):
    annotations = job["metadata"]["annotations"]
    texts = {record: annotations[record] for record in RECORDS if record in annotations}
    texts[api_objects.ANNOTATION_MANIFEST] = json.dumps([{key: job[key] for key in ("apiVersion", "kind", "metadata", "spec")}])
    assert len(texts) == 4

    @EXAMPLES
    @given(st.sampled_from(sorted(texts)).flatmap(
        lambda record: st.tuples(st.just(record), st.one_of(truncations(texts[record]), change_text(texts[record])))
    ))  # fmt: skip
    def check(changed: tuple[str, str]) -> None:
        record, text = changed
        check_commands(kfjob, cluster, record, text)

    check()


def test_unchanged_records_are_used(kfjob: Shell, cluster: ObjectServer, job: dict[str, Any]):
    annotations = job["metadata"]["annotations"]
    assert run(kfjob, "relaunch train") == 0, kfjob.err
    manifest = json.dumps([{key: job[key] for key in ("apiVersion", "kind", "metadata", "spec")}])
    annotations = cluster.objects[KEY]["metadata"]["annotations"]
    del annotations[api_objects.ANNOTATION_SPEC]
    annotations[api_objects.ANNOTATION_MANIFEST] = manifest
    assert run(kfjob, "relaunch train") == 0, kfjob.err
    assert cluster.objects[KEY]["spec"] == job["spec"]


FROM = ["status", "master", "logs --all", "diagnose", "report -o page.html --overwrite", "wait --timeout 0"]


@pytest.fixture
def archived(kfjob: Shell, job: dict[str, Any], here: Path) -> Path:
    """Return the folder of the launch in the archive, after a stop; with a log and an event."""
    assert run(kfjob, "stop train") == 0
    (launch,) = (file.parent for file in here.rglob(folder.STATUS))
    log = folder.make_private(launch / "train-worker-0") / "pytorch.log"
    lines = [*block(0, 0, 1), progress(0, 1, 8.0)]
    log.write_text("".join(f"2026-11-21T09:33:{30 + number}Z {line.text}\n" for number, line in enumerate(lines)))
    event = {"type": "KubernetesEvent", "kind": "Pod", "name": "train-worker-0", "reason": "Created", "message": "x"}
    (launch / folder.EVENTS).write_text(json.dumps([event]))
    return launch


def check_archive(kfjob: Shell, cluster: ObjectServer, launch: Path) -> None:
    """Run every command that reads the archive; the folder keeps its files, also if the job is launched again."""
    files = {file: file.read_bytes() for file in launch.rglob("*") if file.is_file()}
    for command in FROM:
        run(kfjob, f"{command} --from {launch}")
    for command in ("status train", "logs train --all", "relaunch train"):
        run(kfjob, command)
    assert {file: file.read_bytes() for file in launch.rglob("*") if file.is_file()} == files
    assert set(cluster.objects) <= {KEY}
    cluster.objects.clear()


FILES = [folder.SPEC, folder.STATUS, folder.EVENTS, folder.MANIFEST]


@pytest.mark.parametrize("file", FILES)
def test_odd_file_of_the_archive_is_an_error_or_ignored(kfjob: Shell, cluster: ObjectServer, archived: Path, file: str):
    for text in odd_files():
        (archived / file).write_bytes(text)
        check_archive(kfjob, cluster, archived)


def odd_files() -> Iterator[bytes]:
    yield from (text.encode() for text in ODD_TEXTS.values())
    yield from (b"\xff\xfe", b"\0" * 100, b'{"name": "\xed\xa0\x80"}')


@pytest.mark.parametrize("file", FILES[:3])
def test_changed_file_of_the_archive_is_an_error_or_ignored(kfjob: Shell, cluster: ObjectServer, archived: Path, file: str):
    text = (archived / file).read_text()

    @EXAMPLES
    @given(st.one_of(truncations(text), change_text(text)))
    def check(changed: str) -> None:
        (archived / file).write_text(changed)
        check_archive(kfjob, cluster, archived)

    check()
