"""Signals that end a rank at once: before its first step, and the second one while it waits for a peer."""

from __future__ import annotations

import re
import signal
import socket
import time
from functools import partial

import pytest

from kfjob.trainer.stop_request import SECOND_SIGNAL_SECONDS, StopRequest
from tests.trainer.forked import Program

BLOCKED = """
import sys, time
from kfjob.trainer import prepare
from kfjob.trainer.__main__ import main
def block(*args, **kwargs):
    print("blocked", flush=True)
    while True:
        time.sleep(1)
prepare.open_data = block
sys.exit(main(sys.argv[1:]))
"""
IMPATIENT = """
import sys
from kfjob.trainer import stop_request
from kfjob.trainer.__main__ import main
stop_request.SECOND_SIGNAL_SECONDS = 0.2
sys.exit(main(sys.argv[1:]))
"""
ARGUMENTS = ["--model=micro-llama", "--data=synthetic", "--sequence-length=16", "--precision=fp32", "--log-every=1"]


def start(program, arguments, **variables):
    return Program(program, *ARGUMENTS, *arguments, GLOO_SOCKET_IFNAME="lo", **variables)


def wait_for_line(process, text):
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"no line with {text}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_before_the_first_step_ends_the_process_at_once(tmp_path, number):
    process = start(BLOCKED, ["--strategy=none", "--max-steps=3", f"--checkpoint-dir={tmp_path}/c"])
    wait_for_line(process, "blocked")
    process.send_signal(number)
    output = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert output.endswith('Outcome stopped step none loss none checkpoint none reason "signal"\n')


def test_second_signal_ends_a_rank_whose_peer_is_stopped(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    arguments = ["--strategy=ddp", "--max-steps=1000000", "--checkpoint-every=2", f"--checkpoint-dir={tmp_path}/c"]
    first, second = (start(IMPATIENT, arguments, RANK=str(rank), LOCAL_RANK=str(rank), **shared) for rank in range(2))
    try:
        wait_for_line(first, "Checkpoint step-000002")
        second.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 60
        while first.returncode is None and time.monotonic() < deadline:
            first.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        assert first.returncode == 128 + signal.SIGTERM
        output = first.communicate(timeout=30)
    finally:
        for process in (first, second):
            process.kill()
    assert "Note second signal: the run ends at once, and nothing after step-0000" in output
    outcome = r"Outcome stopped step (\d+) loss \d+\.\d{5} checkpoint .*/step-(\d+) reason \"signal\"$"
    match = re.search(outcome, output.splitlines()[-1])
    assert match, output[-1000:]
    assert int(match[1]) >= int(match[2]) >= 2


@pytest.mark.usefixtures("in_process")
def test_signal_that_a_launcher_passes_on_too_is_the_same_request():
    stop = StopRequest(None)
    stop.has_begun = True
    times = [10.0, 10.1, 9.9 + SECOND_SIGNAL_SECONDS, 10.0 + SECOND_SIGNAL_SECONDS]
    assert [stop.must_end_at_once(clock=partial(float, now)) for now in times] == [False, False, False, True]
