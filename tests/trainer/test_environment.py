"""The start of a process: the launcher's variables, the wait for the other ranks, and passwords in what is printed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kfjob.base.errors import KfjobError, SpecError
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.environment import check_home_folders, check_meeting_point, read_place
from kfjob.trainer.metrics import Outcome, log, start_logging
from kfjob.trainer.progress import Progress, record_outcome
from kfjob.trainer.run import _report_failure
from kfjob.trainer.storage import open_storage
from kfjob.trainspec.command_line import from_argv

PASSWORD = "hunter2-4711"  # noqa: S105 -- test data
URL = f"http://user:{PASSWORD}@127.0.0.1:1/ck"
ARGUMENTS = ["--model=micro-llama", "--data=synthetic", "--sequence-length=16", "--max-steps=1", "--precision=fp32"]


def start(*arguments: str, **variables: str):
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    environment = {name: value for name, value in os.environ.items() if name not in names} | variables
    command = [sys.executable, "-m", "kfjob.trainer", *ARGUMENTS, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


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


def test_launch_without_a_meeting_point_ends_at_once():
    output, _ = (process := start(WORLD_SIZE="2")).communicate(timeout=60)
    assert process.returncode == 1
    assert "RANK is not set" in output
    assert "torchrun" in output
    assert "Traceback" not in output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_wait_for_the_other_ranks(number):
    """The listener accepts the connection of rank 1 and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(listener.getsockname()[1])}
        process = start(**variables)
        connection, _ = listener.accept()  # the process waits for rank 0 from now on
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        connection.close()
    assert process.returncode == 128 + number
    assert "Outcome stopped" in output


def test_home_folder_of_no_user_is_an_error():
    with pytest.raises(KfjobError, match="no user") as caught:
        check_home_folders({"data": "~nouser-of-kfjob/x", "model": "~", "seed": 1})
    assert caught.value.location == "data"


@pytest.mark.parametrize("field", ["resume", "validation", "checkpoint-dir"])
def test_password_in_a_url_is_refused_and_not_printed(field):
    output, _ = (process := start(f"--{field}={URL}")).communicate(timeout=60)
    assert process.returncode == 2
    assert PASSWORD not in output
    assert "without a password" in output


def test_password_in_an_error_is_not_printed_or_stored(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    start_logging(verbose=True)
    ranks = Ranks(rank=0, world_size=1, local_rank=0, local_world_size=1, device=torch.device("cpu"), run_id="")
    for error in (KfjobError(f"cannot read `{URL}`", cause=f"no {URL}"), ValueError(URL)):
        storage = open_storage(str(tmp_path / type(error).__name__))
        with pytest.raises(type(error)), record_outcome(Progress(), storage, ranks):
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
