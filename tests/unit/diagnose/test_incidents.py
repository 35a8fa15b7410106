"""The incident stage: every form of a message leads to the same cause, however launchers and loggers have changed its lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

import pytest

from kfjob.joblog.diagnose.diagnosis import Diagnosis
from kfjob.joblog.diagnose.engine.incident_reader import MAX_STREAMS, IncidentReader
from kfjob.joblog.diagnose.engine.incidents import MAX_MESSAGE, Incident, Mark
from kfjob.joblog.diagnose.rule import IncidentKind, Severity
from kfjob.joblog.diagnose.rules import BY_ID
from kfjob.joblog.events import JobPhase
from kfjob.joblog.lines.timestamps import Timestamp
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.prefilter import Prefilter
from tests.unit.diagnose.cases import examine, find_cause, get_cause, lines, read_log
from tests.unit.diagnose.texts import LINES, MESSAGES, Text

ERRORS = [
    text for text in (*MESSAGES, *LINES)
    if BY_ID[text.rule].severity is Severity.ERROR and not BY_ID[text.rule].harmless_before_join
]  # fmt: skip
FRAME = ('  File "/w/train.py", line 7, in main', "    step()")


def diagnose_lines(texts: Sequence[str]) -> Diagnosis:
    return read_log("\n".join(texts), JobPhase.FAILED)


def read_incidents(text: str) -> list[Incident]:
    reader = IncidentReader()
    incidents: list[Incident] = []
    for number, line in enumerate(text.strip("\n").split("\n"), 1):
        incidents += reader.feed(line, Mark(number, Timestamp(), number), lambda: iter(()))
    return [*incidents, *reader.flush()]


def with_prefix(prefix: str) -> Callable[[list[str]], list[str]]:
    return lambda texts: [f"{prefix}{text}" for text in texts]


def after_cut_head(texts: list[str]) -> list[str]:
    """Return the lines without the heading of the first traceback and its first frame."""
    heading = next((index for index, text in enumerate(texts) if "Traceback" in text and text.endswith(":")), None)
    return texts if heading is None else texts[heading + 2 :]


def between_another_rank(texts: list[str]) -> list[str]:
    other = ["[rank7]: Traceback (most recent call last):", *(f"[rank7]: {line}" for line in FRAME), "[rank7]: loading"]
    own = [text if text.startswith("[rank") else f"[rank3]: {text}" for text in texts]
    return [line for pair in zip_longest(own, other) for line in pair if line is not None]


FORMS: dict[str, Callable[[list[str]], list[str]]] = {
    "rank": with_prefix("[rank5]: "),
    "tee": with_prefix("[default2]:"),
    "role": with_prefix("[trainer2]:"),
    "CRI": with_prefix("2026-11-21T06:18:58.464000123Z stderr F "),
    "kubectl": with_prefix("[pod/a-worker-0/pytorch] "),
    "stamp and rank": with_prefix("2026-11-21T06:18:58.464000123Z [rank5]: "),
    "mpirun": with_prefix("[1,3]<stderr>:"),
    "Ray": with_prefix("(RayTrainWorker pid=4711, ip=10.0.0.7) "),
    "cut head": after_cut_head,
    "interleaved": between_another_rank,
    "colours": with_prefix("\x1b[36m\x1b[0m"),
}


@pytest.mark.parametrize("form", sorted(FORMS))
def test_every_form_of_a_message_has_the_same_cause(form: str):
    found = {}
    for text in ERRORS:
        first = diagnose_lines(FORMS[form](text.text.split("\n"))).first_cause
        found[text.text] = first.rule if first else None
    assert found == {text.text: text.rule for text in ERRORS}


@pytest.mark.parametrize(
    "prefix", ["2026-11-21 06:37:50,123 ERROR ", "[2026-11-21 06:37:50,123][ERROR] - ", "ERROR    app.main:main.py:17 "]
)
def test_prefix_of_a_logger_is_learned_from_the_heading(prefix: str):
    texts = ["Traceback (most recent call last):", *FRAME, "KeyError: 'x'"]
    first = get_cause(diagnose_lines([f"{prefix.replace('50', f'5{number}')}{text}" for number, text in enumerate(texts)]))
    assert (first.title, first.line) == ("the program ended with `KeyError: 'x'`", 4)
    assert first.place == "/w/train.py:7"


def test_heading_may_follow_the_text_of_another_process():
    texts = ["  3%|█ | 3/100 [00:01<00:30]Traceback (most recent call last):", *FRAME, "KeyError: 'x'"]
    assert get_cause(diagnose_lines(texts)).place == "/w/train.py:7"


@pytest.mark.parametrize(
    "name", ["pyarrow.lib.ArrowNotImplementedError", "socket.gaierror", "zipfile.LargeZipFile", "queue.Empty", "struct.error"]
)
def test_class_of_an_exception_may_be_dotted(name: str):
    (incident,) = read_incidents("\n".join(["Traceback (most recent call last):", *FRAME, f"{name}: reason"]))
    assert (incident.name, incident.message, incident.location) == (name, "reason", "/w/train.py:7")


def test_message_has_all_its_lines_and_no_others():
    text = "\n".join(["Traceback (most recent call last):", *FRAME, "ValueError: first", "  second", "third", "", "Batch 7"])
    exception, blank, after = read_incidents(text)
    assert exception.lines == ["ValueError: first", "  second", "third"]
    assert (exception.kind, blank.kind, after.lines) == (IncidentKind.EXCEPTION, IncidentKind.MESSAGE, ["Batch 7"])


@pytest.mark.parametrize(("end", "rule"), [
    (FRAME, "traceback-cut"),
    ((*FRAME, "KeyError: 'x'"), "exception"),
    ((FRAME[0], "    raise subprocess.CalledProcessError(1, command)"), "launcher-failed"),
    ((FRAME[0], "    raise ChildFailedError("), "child-failed"),
])  # fmt: skip
def test_log_that_ends_within_a_traceback(end: Sequence[str], rule: str):
    first = get_cause(diagnose_lines(["step 7", "Traceback (most recent call last):", *end]))
    assert (first.rule, first.place) == (rule, "/w/train.py:7")
    assert first.evidence[-1] == end[-1].strip()


@pytest.mark.parametrize("after", ["step 8", "Traceback (most recent call last):"])
def test_traceback_before_other_lines_of_its_process_is_not_cut(after: str):
    assert diagnose_lines(["Traceback (most recent call last):", *FRAME, after]).first_cause is None


LAUNCHER = """Traceback (most recent call last):
  File "/opt/venv/bin/accelerate", line 8, in <module>
    sys.exit(main())
  File "/opt/venv/lib/python3.11/site-packages/accelerate/commands/launch.py", line 763, in simple_launcher
    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)
subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1."""
WORKER = ["Traceback (most recent call last):", *FRAME, "KeyError: 'x'"]


@pytest.mark.parametrize("cut", [slice(None), slice(1, None), slice(3, None), slice(5, None), slice(5), slice(3)])
@pytest.mark.parametrize("order", ["before", "after", "between", "between a prefixed worker"])
def test_launcher_is_never_named_above_its_worker(cut: slice, order: str):
    launcher = LAUNCHER.splitlines()[cut]
    worker = [f"[rank0]: {text}" for text in WORKER] if "prefixed" in order else WORKER
    pairs = [text for pair in zip_longest(worker, launcher) for text in pair if text is not None]
    first = get_cause(diagnose_lines({"before": launcher + worker, "after": worker + launcher}.get(order, pairs)))
    assert first.title == "the program ended with `KeyError: 'x'`"


def test_leaf_of_a_group_is_the_cause():
    first = get_cause(diagnose_lines(next(text.text for text in MESSAGES if "Exception Group" in text.text).split("\n")))
    assert "ValueError: odd" in " ".join(first.evidence)


def test_evidence_is_quoted_whole_with_the_lines_before_it():
    text = next(text for text in MESSAGES if text.rule == "nccl-no-interface")
    first = get_cause(diagnose_lines(["epoch 1", "epoch 2", "epoch 3", *text.text.split("\n")]))
    assert first.context == ("epoch 2", "epoch 3")
    assert first.evidence[-1] == "[rank0]: Bootstrap : no socket interface found"
    assert any("DistBackendError" in line for line in first.evidence)


SAMPLE = """step 40 loss 1.92 sample: 'please explain:
Traceback (most recent call last):
  File "b.py", line 3, in <module>
    y = f(x)
TypeError: f() takes no arguments
what does it mean?'"""


@pytest.mark.parametrize("text", [
    SAMPLE,
    "prompt: 'RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB'",
    '{"step": 3, "text": "OSError: [Errno 28] No space left on device"}',
])  # fmt: skip
def test_error_in_a_sample_of_the_data_is_no_cause(text: str):
    diagnosis, _ = examine(lines(text))
    assert diagnosis.healthy
    assert not diagnosis.warnings


@pytest.mark.parametrize("text", [
    "/opt/x.py:46: UserWarning: [Errno 28] No space left on device. It runs in one process",
    "[2026-11-21 06:37:50] [WARNING] [utils.py:3] Too many open files, so shards are read one by one",
    "2026-11-21 06:37:50 ERROR download: Read-only file system: '/x/.cache', retrying in 5 s",
    "'ReadTimeoutError(\"huggingface.co timed out\")' thrown while requesting GET https://huggingface.co/a",
    "2026-11-21 06:37:50 ERROR skipped sample 131: UnicodeDecodeError: 'utf-8' codec can't decode byte 0x80 in position 0",
])  # fmt: skip
def test_error_that_the_program_survives_is_a_warning(text: str):
    diagnosis, _ = examine(lines(text))
    assert diagnosis.healthy
    assert diagnosis.warnings


def test_rule_about_frames_needs_them():
    text = next(text for text in MESSAGES if text.rule == "shm-semaphores").text
    other = text.replace("synchronize.py", "files.py").replace("SemLock", "open")
    pool = other.replace("multiprocessing/files.py", "site-packages/joblib/_memmapping_reducer.py")
    causes = [diagnose_lines(lines.split("\n")).first_cause for lines in (text, pool, other)]
    assert [cause.rule for cause in causes if cause] == ["shm-semaphores", "shm-semaphores", "disk-full"]


@pytest.mark.parametrize("text", MESSAGES, ids=lambda text: text.rule)
def test_prefilter_keeps_every_line_of_an_incident(text: Text):
    noise = [f"sample {number}: the quick brown fox" for number in range(20)]
    block = "".join(f"{line}\n" for line in (*noise, *text.text.split("\n"), *noise)).encode()
    prefilter = Prefilter(ObserveConfig(trainer="kfjob", rendezvous="c10d"), diagnosis=True)
    selected = [block[start:end].decode() for start, end in prefilter.select(block)]
    assert get_cause(diagnose_lines(selected)).rule == text.rule


def test_memory_is_bounded():
    reader = IncidentReader()
    for number in range(3 * MAX_STREAMS):
        mark = Mark(number, Timestamp(), number)
        for text in ("Traceback (most recent call last):", *FRAME, "KeyError: 1", *["more"] * 2 * MAX_MESSAGE):
            for incident in reader.feed(f"[rank{number}]: {text}", mark, lambda: iter(())):
                assert len(incident.lines) <= MAX_MESSAGE
    assert len(list(reader.flush())) <= MAX_STREAMS


def find_first_context(text: str) -> tuple[str, ...]:
    first = find_cause(lines(text))
    return first.context


FAILURE = (
    '[rank3]: Traceback (most recent call last):\n[rank3]:   File "/app/train.py", line 9, in <module>\n[rank3]: KeyError: 7'
)


def test_context_is_of_the_same_process():
    steps = "[rank3]: reading shard 12\n[rank0]: step 7\n[rank3]: reading shard 13\n[rank1]: step 7\n[rank0]: step 8"
    assert find_first_context(f"{steps}\n{FAILURE}") == ("[rank3]: reading shard 12", "[rank3]: reading shard 13")


def test_lines_without_a_process_are_context_of_a_process_that_printed_none():
    assert find_first_context(f"loading\n[rank0]: step 7\n[rank1]: step 7\n{FAILURE}") == ("loading",)


def test_lines_of_other_processes_are_no_context():
    assert find_first_context(f"[rank0]: step 7\n[rank1]: step 7\n{FAILURE}") == ()


def test_frames_rulers_and_lines_of_the_agent_are_no_context():
    agent = "W1121 06:37:49.6 9 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 9 closing signal SIGTERM"
    text = f'epoch 3\n{agent}\n=========\n  warnings.warn(\n\n  File "/app/a.py", line 3\nRuntimeError: CUDA error: x'
    assert find_first_context(text) == ("epoch 3",)


@pytest.mark.parametrize("folder", ["/w/site", "/venv/lib/python3.12/site-packages", "/usr/lib/python3/dist-packages"])
def test_innermost_frame_of_the_program_is_not_one_of_a_library(folder: str):
    frames = '  File "/w/site/train.py", line 7, in <module>', f'  File "{folder}/package/core.py", line 9, in main'
    (incident,) = read_incidents("\n".join(["Traceback (most recent call last):", *frames, "KeyError: 'lr'"]))
    assert incident.location == "/w/site/train.py:7"
