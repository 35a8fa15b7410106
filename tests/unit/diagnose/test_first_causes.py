"""Lines that look like causes, or like progress, beside the failure that ended the job."""

from __future__ import annotations

import pytest

from kfjob.joblog.events import JobChanged, JobPhase, PodChanged, PodPhase
from tests.unit.diagnose.cases import examine, find_cause, get_cause, lines, read_cause, read_log

TYPE_ERROR = """Traceback (most recent call last):
  File "/w/tune.py", line 12, in <module>
    trainer = Tuner(
TypeError: Tuner.__init__() got an unexpected keyword argument 'length'"""
UNRESOLVED = (
    "[W1120 01:00:13.6 socket.cpp:697] [c10d] The IPv4 network addresses of (first.svc, 29500) cannot be retrieved "
    "(gai error: -2 - Name or service not known)."
)
UNREACHED = "The client socket has timed out after 900000ms while trying to connect to (first.svc, 29500)."


@pytest.mark.parametrize("before", [
    "bin /usr/lib/libbitsandbytes_cuda124.so",
    "Installed CUDA version 12.2 does not match the version torch was compiled with 12.1, accepting this combination",
])  # fmt: skip
def test_note_before_the_failure_is_no_cause(before: str):
    assert read_cause(f"{before}\n{TYPE_ERROR}").rule == "library-interface"


PROBE = "/usr/bin/ld: cannot find -laio\ncollect2: error: ld returned 1 exit status"
STEPS = "\n".join(f"loading part {part}" for part in range(5))
BUILD = f"{TYPE_ERROR.rpartition(chr(10))[0]}\nRuntimeError: Error building extension 'async_io'"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (f"{PROBE}\n{STEPS}\n{TYPE_ERROR}", "library-interface"),
        (f"{PROBE}\n{STEPS}\n{BUILD}", "build-files-missing"),
        (f"{PROBE}\n{TYPE_ERROR}", "build-files-missing"),
        (PROBE, "build-files-missing"),
    ],
    ids=["other error", "build", "error at once", "end of the log"],
)
def test_message_of_the_linker_is_the_cause_of_a_failed_build(text: str, rule: str):
    assert read_cause(text).rule == rule


def test_message_of_the_linker_that_nothing_follows_is_a_warning():
    diagnosis = read_log(f"{PROBE}\n{STEPS}")
    assert diagnosis.healthy
    assert [issue.rule for issue in diagnosis.warnings] == ["build-files-missing"]


@pytest.mark.parametrize("text", [
    "The image extension is not loaded: libdecoder.so.3: cannot open shared object file: No such file or directory",
    "There was a problem when trying to write in your cache folder (/root/.cache/hub). You should set HF_HOME.",
    "sh: 1: nvcc: not found",
])  # fmt: skip
def test_optional_part_that_is_missing_is_a_warning_of_a_program_that_goes_on(text: str):
    assert read_log(text).first_cause
    diagnosis = read_log(f"{text}\nstep 10 | loss 4.2\nstep 20 | loss 3.9")
    assert diagnosis.healthy
    assert diagnosis.warnings


def test_library_that_a_crashing_container_misses_is_its_cause():
    text = "python: error while loading shared libraries: libcudart.so.12: cannot open shared object file: No such file"
    state = PodChanged(
        pod="a-worker-0", phase=PodPhase.RUNNING, reason="CrashLoopBackOff", restarts=6, exit_code=127, container_id="c"
    )
    diagnosis, _ = examine([JobChanged(phase=JobPhase.RUNNING), *lines(text), state])
    assert get_cause(diagnosis).rule == "shared-library-missing"


@pytest.mark.parametrize("text", [
    "using seed value from checkpoint (42)",
    "ssh: connect to host github.com port 22: Connection timed out",
])  # fmt: skip
def test_line_of_a_healthy_job_is_no_cause(text: str):
    assert read_log(f"{text}\nstep 10 | loss 4.2\nstep 20 | loss 3.9", JobPhase.RUNNING).first_cause is None


def test_optional_triton_is_no_failure_of_a_running_job():
    text = "A matching Triton is not available, some optimizations will not be enabled."
    assert read_log(text, JobPhase.RUNNING).first_cause is None
    assert read_log(text, JobPhase.FAILED).first_cause


@pytest.mark.parametrize("library", [
    "libbitsandbytes_cuda124.so: cannot open shared object file: No such file or directory",
    "Could not find the bitsandbytes CUDA binary at PosixPath('/x/libbitsandbytes_cuda124.so')",
])  # fmt: skip
def test_missing_library_of_bitsandbytes_is_the_cause(library: str):
    assert read_cause(f"{TYPE_ERROR.rpartition(chr(10))[0]}\nRuntimeError: {library}").rule == "bitsandbytes-binary"


@pytest.mark.parametrize("error", ["Exception: no variant fits", "errors.DataTimeout: 5 s", "x.hub.errors.GoneError: 404"])
def test_exception_with_the_label_of_srun_ends_its_traceback(error: str):
    heading = TYPE_ERROR.rpartition("\n")[0]
    labelled = "\n".join(f"3: {line}" for line in f"{heading}\n{error}".splitlines())
    first, expected = read_log(labelled).first_cause, read_log(f"{heading}\n{error}").first_cause
    assert first
    assert expected
    assert (first.rule, first.title) == (expected.rule, expected.title)


def test_step_that_slurm_cancels_is_no_step_of_the_training():
    warning = "/w/download.py:653: UserWarning: Not enough free disk space to download the file."
    slurm = "slurmstepd: error: *** STEP 5512087.0 ON node1 CANCELLED AT 2026-11-20T13:19:44 ***"
    traceback = f"{TYPE_ERROR.rpartition(chr(10))[0]}\nOSError: [Errno 122] Disk quota exceeded"
    assert read_cause(f"{warning}\n  warnings.warn(\n{traceback}\n{slurm}").rule == "disk-quota"


def test_agent_that_gave_up_makes_failed_connections_errors():
    traceback = f"{TYPE_ERROR.rpartition(chr(10))[0]}\ntorch.distributed.DistNetworkError: {UNREACHED}"
    first = read_cause(f"{UNRESOLVED}\n[E1120 01:15:13.1 socket.cpp:1019] [c10d] {UNREACHED}\n{traceback}")
    assert first.rule == "rendezvous-unresolvable"


LOGGING_ERROR = """--- Logging error ---
Traceback (most recent call last):
  File "/w/lib/store.py", line 12, in wait
    store.wait()
torch.distributed.DistStoreError: wait timeout after 300000ms

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/usr/lib/python3.11/logging/__init__.py", line 1110, in emit
    msg = self.format(record)
KeyError: 'color'
Call stack:
  File "/w/train.py", line 40, in <module>
    main()
  File "/w/train.py", line 31, in main
    logger.info("epoch %d", epoch)
Message: 'epoch %d'
Arguments: (3,)"""


def test_report_of_a_logging_error_is_no_failure():
    diagnosis = read_log(f"step 1 loss 2.5\n{LOGGING_ERROR}\nstep 2 loss 2.4")
    assert diagnosis.first_cause is None
    assert not diagnosis.other_causes


def test_failure_after_the_report_of_a_logging_error_is_the_cause():
    assert read_cause(f"{LOGGING_ERROR}\n{TYPE_ERROR}").rule == "library-interface"


CHAIN = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/w/data.py", line 30, in load
[rank0]:     count = int(text)
[rank0]: ValueError: invalid literal for int() with base 10: 'seven'
[rank0]:
[rank0]: {joint}
[rank0]:
[rank0]: Traceback (most recent call last):
[rank0]:   File "/w/data.py", line 33, in load
[rank0]:     raise ShardError("shard 17 is damaged") from err
[rank0]: data.ShardError: shard 17 is damaged
[rank0]:
[rank0]: {joint}
[rank0]:
[rank0]: Traceback (most recent call last):
[rank0]:   File "/w/train.py", line 9, in <module>
[rank0]:     raise RuntimeError("the pipeline failed") from err
[rank0]: RuntimeError: the pipeline failed
"""


@pytest.mark.parametrize(
    "prefix", ["[rank0]: ", "worker-1: ", "stderr: ", "3: ", "(train pid=71) "]
)  # torch, pdsh, accelerate, srun, Ray
def test_exception_is_read_behind_the_prefix_of_a_launcher(prefix: str):
    text = CHAIN.partition("[rank0]:\n")[0].replace("[rank0]: ", prefix)
    assert "invalid literal" in find_cause([*lines(text), JobChanged(phase=JobPhase.FAILED)]).title


def test_first_exception_of_a_chain_is_the_cause_and_its_wrappers_are_quoted():
    joint = "The above exception was the direct cause of the following exception:"
    diagnosis, _ = examine([*lines(CHAIN.format(joint=joint)), JobChanged(phase=JobPhase.FAILED)])
    assert diagnosis.first_cause
    assert "invalid literal" in diagnosis.first_cause.title
    assert diagnosis.first_cause.place == "/w/data.py:30"
    wrappers = ("[rank0]: data.ShardError: shard 17 is damaged", "[rank0]: RuntimeError: the pipeline failed")
    assert diagnosis.first_cause.evidence[-2:] == wrappers
    assert "[rank0]:" not in diagnosis.first_cause.evidence
    assert not (*diagnosis.other_causes, *diagnosis.consequences, *diagnosis.recovered)


def test_exception_while_another_one_was_handled_stays_the_cause():
    joint = "During handling of the above exception, another exception occurred:"
    diagnosis, _ = examine([*lines(CHAIN.format(joint=joint)), JobChanged(phase=JobPhase.FAILED)])
    assert "the pipeline failed" in get_cause(diagnosis).title
    assert not diagnosis.other_causes
