"""A handled exception is no cause, and a program's own report of its end is quoted as what it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kfjob.base.units import SECOND
from kfjob.cli.diagnose import diagnosis_text
from kfjob.joblog.diagnose.engine.line_reports import has_full_bar, reports_success
from kfjob.joblog.events import Event, JobChanged, JobPhase, LogLine, PodChanged, PodPhase
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.prefilter import Prefilter
from tests.unit.diagnose.cases import (
    START,
    block,
    examine,
    exit_report,
    find_cause,
    get_cause,
    line,
    lines,
    progress,
    read_cause,
    read_log,
)

IMPORT = """Traceback (most recent call last):
  File "/w/opt.py", line 3, in <module>
    import apex
ModuleNotFoundError: No module named 'apex'"""
CRASH = """Traceback (most recent call last):
  File "/w/train.py", line 9, in <module>
    step()
ValueError: the data has 7 columns"""
HEAD = CRASH.rpartition("\n")[0]
STEPS = "\n".join(f"step {step} loss {3 - step / 10:.1f}" for step in range(1, 6))


@pytest.mark.parametrize("after", [
    "apex not available; using torch AdamW",
    "Falling back to the pure Python implementation",
    f"2026-11-21 06:37:50 INFO go on\n{STEPS}",
    "2026-11-21 06:37:50 INFO Training finished",
    f"Retrying in 5 s\n{STEPS}",
])  # fmt: skip
def test_handled_exception_is_recovered(after: str):
    diagnosis = read_log(f"{IMPORT}\n{after}")
    assert diagnosis.healthy
    assert [issue.rule for issue in diagnosis.recovered] == ["module-not-found"]


@pytest.mark.parametrize("after", [
    "",
    "  1%|##  | 1/100 [00:01<01:00]",  # drawn again at the end of the process
    "Retrying in 5 s",
    "RuntimeError: the training did not finish",
    "2026-11-21 06:37:50 INFO wandb: Synced 5 files",
])  # fmt: skip
def test_exception_that_nothing_follows_is_the_cause(after: str):
    assert read_cause(f"{IMPORT}\n{after}").rule == "module-not-found"


def test_last_exception_of_a_process_is_its_cause():
    diagnosis = read_log(f"{IMPORT}\n\nloading data\ntokenizing\nGPU memory 3 GB\n{CRASH}")
    assert "7 columns" in get_cause(diagnosis).title
    assert [issue.rule for issue in diagnosis.recovered] == ["module-not-found"]


def test_exceptions_that_follow_each_other_directly_stay_together():
    assert read_cause(f"{IMPORT}\n\n{CRASH}").rule == "module-not-found"


def test_same_exception_that_was_handled_once_and_not_again():
    first = read_cause(f"{IMPORT}\nRetrying in 5 s\n{STEPS}\n{IMPORT}")
    assert (first.rule, first.line) == ("module-not-found", 14)


@pytest.mark.parametrize(
    "before",
    ["--- Logging error ---", "Error in atexit._run_exitfuncs:", "Exception ignored in: <function f at 0x7f>"],
)
def test_exception_that_only_python_has_seen_is_no_issue(before: str):
    diagnosis = read_log(f"{before}\n{CRASH}")
    assert diagnosis.healthy
    assert not diagnosis.warnings


@pytest.mark.parametrize(
    "before", ["Exception in thread Thread-1 (reader):", "Task exception was never retrieved\nfuture: <Task finished>"]
)
def test_exception_of_a_thread_or_a_task_is_a_warning(before: str):
    diagnosis = read_log(f"{before}\n{CRASH}")
    assert diagnosis.healthy
    assert [issue.rule for issue in diagnosis.warnings] == ["thread-died"]


@pytest.mark.parametrize("text", [
    "{'train_runtime': 3311.2, 'train_samples_per_second': 12.3, 'train_loss': 0.93, 'epoch': 3.0}",
    "Training completed. Do not forget to share your model on huggingface.co/models =)",
    "`Trainer.fit` stopped: `max_epochs=3` reached.",
    "100%|##########| 500/500 [10:11<00:00,  1.2s/it]",
])  # fmt: skip
def test_report_of_success_is_quoted_and_not_claimed(text: str):
    diagnosis = read_log(f"step 1 of 2\n{text}")
    assert not diagnosis.succeeded
    assert diagnosis.reports == (("a-worker-0", text),)
    assert "the log ends with a report of success, and the exit code is unknown" in "\n".join(diagnosis_text("a", diagnosis))


@pytest.mark.parametrize("change", [str, str.lower, str.upper, str.capitalize], ids=["as is", "lower", "upper", "capitals"])
@pytest.mark.parametrize("text", [
    "'train_runtime': 3311.2",
    "Training finished",
    "Training complete",
    "Fine-tuning completed",
    "Job done",
    "Training succeeded",
    "Finished training",
    "Completed the run",
    "Done with everything",
    "all done",
    "done.",
    "Finished in 3 h",
    "Model saved to /out",
    "Adapter was saved at /out",
    "Saved the trained model",
    "Saving final model…",
    "Saving last checkpoint",
    "`Trainer.fit` stopped: `max_steps=3` reached.",
    "exited with code 0",
    "exit code: 0",
])  # fmt: skip
def test_every_form_of_success_passes_the_filter(text: str, change: Callable[[str], str]):
    line = change(text)
    assert read_log(f"step 1 of 2\n{line}").reports == (("a-worker-0", line),)
    block = f"noise\n{line}\n".encode()
    assert (6, len(block) - 1) in Prefilter(ObserveConfig(), diagnosis=True).select(block)


@pytest.mark.parametrize("text", [
    "Training not finished",
    "training finished with errors",
    "waiting until training is complete",
    "before the job is done",
    "Map: 100%|##########| 500/500 [10:11<00:00,  1.2s/it]",
    "Loading checkpoint shards: 100%|##########| 3/3 [00:11<00:00]",
    "download complete",
    "100%|##########| 1.2G/1.2G [00:10<00:00, 120MB/s]",
    "Validation: 100%|##########| 50/50 [00:10<00:00,  5.0it/s]",
])  # fmt: skip
def test_other_lines_report_no_success(text: str):
    assert not reports_success(text)
    assert not has_full_bar(text)
    assert not read_log(text).reports


@pytest.mark.parametrize("text", [
    "100%|##########| 200/200 [03:10<00:00,  1.05it/s]",
    "Epoch 2: 100%|##########| 60/60 [00:11<00:00,  5.4it/s, loss=2.1]",
    "Epochs: 100%|##########| 2/2 [00:11<00:00,  5.4s/it]",
    "train: 100%|##########| 60/60 [00:11<00:00,  5.4it/s]",
])  # fmt: skip
def test_a_full_bar_of_the_training_is_a_report(text: str):
    assert has_full_bar(text)


COMMAND = "cp: cannot stat '/cache/a': No such file or directory"


@pytest.mark.parametrize("after", [STEPS, "2026-11-21 06:37:50 INFO Training finished", "Saved the model to /out"])
def test_script_that_goes_on_after_a_failed_command_is_healthy(after: str):
    diagnosis = read_log(f"{COMMAND}\n{after}")
    assert diagnosis.healthy
    assert [issue.rule for issue in diagnosis.recovered] == ["command-file-missing"]


def test_failed_command_at_the_end_is_the_cause():
    assert read_cause(f"starting\n{COMMAND}").rule == "command-file-missing"


def test_failed_command_of_a_running_job_is_a_warning():
    assert [issue.rule for issue in read_log(COMMAND, JobPhase.RUNNING).warnings] == ["command-file-missing"]


def test_version_look_up_without_a_repository_is_no_issue():
    diagnosis = read_log("fatal: not a git repository (or any of the parent directories): .git")
    assert not diagnosis.first_cause
    assert not diagnosis.recovered


def test_exception_after_a_failed_command_is_the_cause():
    diagnosis = read_log(f"{COMMAND}\n{CRASH}")
    assert "7 columns" in get_cause(diagnosis).title
    assert [issue.rule for issue in diagnosis.recovered] == ["command-file-missing"]


def test_failure_that_a_warning_announced_is_an_error():
    text = "The NVIDIA driver on your system is too old (found version 11040)."
    warning = f"/w/torch/cuda/__init__.py:129: UserWarning: CUDA initialization: {text}"
    assert not read_log(warning).first_cause
    assert read_cause(f"{warning}\n{HEAD}\nRuntimeError: {text}").rule == "driver-too-old"


def test_error_that_is_quoted_in_a_labelled_sample_is_no_issue():
    assert read_log('question: How do I fix "RuntimeError: CUDA error: out of memory" here?\nstep 1').healthy


def with_steps(first: int, last: int) -> str:
    return "\n".join(f"2026-11-21 06:37:{step:02} INFO step {step} loss {3 - step / 10:.2f}" for step in range(first, last))


@pytest.mark.parametrize(("before", "after"), [
    (with_steps(1, 9), with_steps(9, 11)),  # it got further than before, within a second of the exception
    ("", with_steps(1, 4)),
])  # fmt: skip
def test_exception_before_further_progress_of_the_only_process_is_recovered(before: str, after: str):
    diagnosis = read_log(f"{before}\n{CRASH}\n{after}".strip())
    assert diagnosis.healthy
    assert [issue.rule for issue in diagnosis.recovered] == ["exception"]


@pytest.mark.parametrize(("before", "after"), [
    (with_steps(1, 9), with_steps(9, 10)),  # another rank may have been one step ahead
    ("2026-11-21 06:37:00 WARNING the rate is high", "2026-11-21 06:37:01 INFO closing"),
])  # fmt: skip
def test_exception_without_further_progress_is_the_cause(before: str, after: str):
    assert read_cause(f"{before}\n{CRASH}\n{after}").rule == "exception"


@pytest.mark.parametrize("prefix", ["WARNING:root:upload failed: ", "/w/up.py:3: UserWarning: "])
def test_traceback_in_a_warning_is_a_warning(prefix: str):
    diagnosis = read_log(f"{prefix}{CRASH}")
    assert diagnosis.healthy
    assert [issue.rule for issue in diagnosis.warnings] == ["exception"]


def test_a_failure_that_no_restart_cures_is_the_cause_though_the_next_round_printed_progress():
    """kfjob ends the agent then: neither the signal is the cause, nor has the job recovered."""
    ended = "ended, because a restart cannot cure this"
    events: list[Event] = [
        *block(0, 0, "a-worker-0", world=1),
        progress(1, 1),
        *lines(CRASH, 2),
        *block(0, 3, "a-worker-0", world=1),
        progress(1, 4),
        line("W1123 08:18:24.940000 9 torch/distributed/elastic/agent/server/api.py:752] Received 15 death signal", 5),
        PodChanged(pod="a-worker-0", phase=PodPhase.FAILED, exit_code=1, reason="Error", message=ended, ended_by_kfjob=True),
    ]
    end = JobChanged(phase=JobPhase.FAILED, reason="NotRestarted", message="a restart cannot cure this")
    before, _ = examine(events)
    assert before.first_cause is None or before.first_cause.rule != "agent-stopped"
    diagnosis, _ = examine([*events, end])
    assert get_cause(diagnosis).title == "the program ended with `ValueError: the data has 7 columns`"
    assert "agent-stopped" in [issue.rule for issue in diagnosis.harmless]


@pytest.mark.parametrize("after", ["falling back to CPU", "2026-11-21 06:37:50 INFO Training completed successfully", STEPS])
def test_survived_error_is_the_suspect_if_nothing_else_explains_the_failure(after: str):
    failed = PodChanged(pod="a-worker-0", phase=PodPhase.FAILED, exit_code=1, reason="Error")
    log = [LogLine(pod="a-worker-0", text=text) for text in f"{IMPORT}\n{after}".splitlines()]
    for end in ([JobChanged(phase=JobPhase.FAILED)], [failed], [failed, JobChanged(phase=JobPhase.FAILED)]):
        diagnosis, _ = examine([*log, *end])
        assert diagnosis.first_cause
        assert (diagnosis.first_cause.rule, diagnosis.first_cause.severity) == ("module-not-found", "error")
        assert not diagnosis.recovered
        assert diagnosis.explained
    text = "\n".join(diagnosis_text("a", read_log(f"{IMPORT}\n{after}", JobPhase.FAILED)))
    assert "the program went on after it, but no other error explains the failure" in text


def test_last_survived_error_is_the_suspect():
    log = f"{IMPORT}\nfalling back to torch\nloading\n\n{CRASH}\nskipping the sample\nnoise"
    diagnosis = read_log(log, JobPhase.FAILED)
    assert "7 columns" in get_cause(diagnosis).title
    assert [issue.rule for issue in diagnosis.recovered] == ["module-not-found"]


def test_survived_error_is_no_suspect_beside_another_cause_or_in_another_pod():
    log = [LogLine(pod="a-worker-0", text=text) for text in f"{IMPORT}\nfalling back to torch\nnoise".splitlines()]
    killed = PodChanged(pod="a-worker-0", phase=PodPhase.FAILED, exit_code=137, reason="Error")
    assert find_cause([*log, killed, JobChanged(phase=JobPhase.FAILED)]).rule == "pod-killed"
    other = [LogLine(pod="a-worker-1", text=text) for text in f"{CRASH}\nfalling back to 6\nnoise".splitlines()]
    failed = PodChanged(pod="a-worker-0", phase=PodPhase.FAILED, exit_code=1, reason="Error")
    assert find_cause([*log, *other, failed]).rule == "module-not-found"


@pytest.mark.parametrize("after", ["falling back to torch\nnoise", "2026-11-21 06:37:50 INFO Training finished"])
def test_exit_code_of_the_agent_brings_back_the_error_that_a_worker_survived(after: str):
    diagnosis = read_log(f"{IMPORT}\n{after}\n{exit_report()}")
    assert get_cause(diagnosis).rule == "module-not-found"
    assert [issue.rule for issue in diagnosis.consequences] == ["worker-failed"]


@pytest.mark.parametrize("between", ["", "loading the data\nreading the shards\nbuilding the model\n"])
def test_of_equal_failures_the_first_is_the_cause(between: str):
    first = read_cause(between.join([f"{CRASH}\n"] * 4))
    assert (first.line, first.count) == (4, 4)


def test_of_equal_rounds_the_first_is_the_cause_though_each_round_trains():
    events: list[Event] = []
    for attempt in range(4):
        start = 10 * attempt
        events += [
            *block(0, start, "a-worker-0", world=1, port=1234 + attempt),
            progress(1, start + 1),
            *lines(CRASH, start + 2),
        ]
    diagnosis, _ = examine([*events, JobChanged(phase=JobPhase.FAILED)])
    assert diagnosis.first_cause
    assert (diagnosis.first_cause.time, diagnosis.first_cause.count) == (START + 2 * SECOND, 4)
    assert not diagnosis.recovered
    assert any(text.endswith("; 4 times") for text in diagnosis_text("a", diagnosis))


def test_exception_of_a_job_that_succeeded_is_not_said_to_have_ended_it():
    diagnosis, _ = examine([*lines(CRASH, 1), JobChanged(phase=JobPhase.SUCCEEDED)])
    assert [issue.title for issue in diagnosis.recovered] == ["exception `ValueError: the data has 7 columns`"]


def test_a_time_of_an_earlier_line_is_marked():
    diagnosis = read_log(f"2026-11-21 06:38:10 starting\n{CRASH}")
    assert any("after 2026-11-21 06:38:10Z" in text for text in diagnosis_text("a", diagnosis))


def test_lost_peer_before_the_end_that_the_program_reports_is_no_error():
    lost = "node1:21:40 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer node1<33412>"
    assert read_log(f"{lost}\nTraining complete").healthy
    assert not read_log(f"Training complete\n{lost}").healthy
    assert not read_log("NCCL WARN no socket interface found\nTraining complete").healthy


@pytest.mark.parametrize("message", [
    "/app/start.sh: line 3: nvidia-smi: command not found",
    "/data/a.mp4: Invalid data found when processing input",
])  # fmt: skip
def test_message_before_steps_and_the_end_that_the_program_reports_is_no_error(message: str):
    assert read_log(f"{message}\nstep 10 loss 2.9\nstep 20 loss 2.8\nTraining complete").healthy
    assert not read_log(f"{message}\nTraining complete").healthy
    assert not read_log(f"step 10 loss 2.9\nstep 20 loss 2.8\n{message}\nTraining complete").healthy
