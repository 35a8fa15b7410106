"""The start of a process: the launcher's variables, the wait for the other ranks, and passwords in what is printed."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from kfjob.base.errors import KfjobError, SpecError
from kfjob.trainer.__main__ import main
from kfjob.trainer.environment import check_home_folders, check_meeting_point, read_place
from kfjob.trainer.metrics import Outcome, log, start_logging
from kfjob.trainer.progress import Progress, record_outcome
from kfjob.trainer.run import _report_failure
from kfjob.trainer.storage import open_storage
from kfjob.trainspec.command_line import from_argv
from tests.trainer.forked import Program
from tests.trainer.test_model import SINGLE_RANK

PASSWORD = "hunter2-4711"  # noqa: S105 -- test data
URL = f"http://user:{PASSWORD}@127.0.0.1:1/ck"
TRAINER = "import sys; from kfjob.trainer.__main__ import main; sys.exit(main(sys.argv[1:]))"
ARGUMENTS = ["--model=micro-llama", "--data=synthetic", "--sequence-length=16", "--max-steps=1", "--precision=fp32"]


@pytest.mark.parametrize(
    "variables",
    [
        {"WORLD_SIZE": "abc"},
        {"WORLD_SIZE": "0"},
        {"RANK": "5"},
        {"RANK": "2", "WORLD_SIZE": "2"},
        {"LOCAL_RANK": "-1"},
        {"LOCAL_RANK": ""},
        {"LOCAL_RANK": "8", "LOCAL_WORLD_SIZE": "8"},
    ],
)
def test_impossible_place_is_an_error(variables):
    with pytest.raises(KfjobError) as caught:
        read_place(variables)
    assert caught.value.location in ("RANK", "WORLD_SIZE", "LOCAL_RANK")


@pytest.mark.parametrize("missing", ["RANK", "MASTER_ADDR", "MASTER_PORT"])
def test_ranks_that_cannot_meet_are_an_error(missing):
    variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    check_meeting_point(read_place(variables), variables)
    del variables[missing]
    with pytest.raises(KfjobError, match=f"{missing} is not set"):
        check_meeting_point({"RANK": 1, "WORLD_SIZE": 2}, variables)


def test_launch_without_a_meeting_point_ends_at_once(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    assert main(ARGUMENTS) == 1
    error = capsys.readouterr().err
    assert "RANK is not set" in error
    assert "torchrun" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_wait_for_the_other_ranks(number):
    """The listener accepts the connection of rank 1 and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        process = Program(TRAINER, *ARGUMENTS, RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        connection, _ = listener.accept()  # the process waits for rank 0 from now on
        process.send_signal(number)
        output = process.communicate(timeout=60)
        connection.close()
    assert process.returncode == 128 + number
    assert "Outcome stopped" in output


def test_home_folder_of_no_user_is_an_error():
    with pytest.raises(KfjobError, match="no user") as caught:
        check_home_folders({"data": "~nouser-of-kfjob/x", "model": "~", "seed": 1})
    assert caught.value.location == "data"


@pytest.mark.parametrize("field", ["resume", "validation", "checkpoint-dir"])
def test_password_in_a_url_is_refused_and_not_printed(field, capsys):
    assert main([*ARGUMENTS, f"--{field}={URL}"]) == 2
    output = capsys.readouterr()
    assert PASSWORD not in output.out + output.err
    assert "without a password" in output.err


def test_password_in_an_error_is_not_printed_or_stored(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    start_logging(verbose=True)
    for error in (KfjobError(f"cannot read `{URL}`", cause=f"no {URL}"), ValueError(URL)):
        storage = open_storage(str(tmp_path / type(error).__name__))
        with pytest.raises(type(error)), record_outcome(Progress(), storage, SINGLE_RANK):
            raise error
        _report_failure(error, Progress(), debug=True)
    log.warning("Checkpoint not written: %s", URL)
    stored = [path.read_text() for path in tmp_path.rglob("*.json")]
    assert len(stored) == 3
    assert not [text for text in (*stored, *capsys.readouterr()) if PASSWORD in text]


def test_outcome_of_a_url_holds_no_password(tmp_path):
    Outcome(outcome="finished", step=1, checkpoint=URL).write(open_storage(str(tmp_path)), overwrite=True)
    assert json.loads(Path(tmp_path, "outcome.json").read_text())["checkpoint"] == URL.replace(PASSWORD, "[redacted]")


@pytest.mark.parametrize(
    "field", ["eval_batches", "eval_batch_size", "micro_batch_size", "gradient_accumulation_steps", "lanes"]
)
def test_number_that_no_run_can_have_is_refused(field):
    assert getattr(from_argv([*ARGUMENTS, f"--{field}=1000000"]), field) == 1_000_000
    with pytest.raises(SpecError, match="at most 1000000"):
        from_argv([*ARGUMENTS, f"--{field}=100000000000000"])


def test_seed_beyond_64_bits_is_refused():
    with pytest.raises(SpecError, match="seed"):
        from_argv([*ARGUMENTS, f"--seed={10**24}"])
