"""Commands in a container: the messages of the websocket, the exit code, and errors."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from websocket import ABNF, WebSocketBadStatusException, WebSocketConnectionClosedException

from kfjob.backends.base import CommandStreams
from kfjob.base.errors import Forbidden, KfjobError, NotFound, Refused, Unreachable
from kfjob.cluster import requests
from kfjob.cluster.client import Client
from kfjob.cluster.remote_command import run_command
from tests.fakes.transport import FakeTransport

PING, PART = 100, 101
"""Channels of the script that stand for other frames."""
SUCCESS = json.dumps({"status": "Success"})
END_WITH = json.dumps({"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "CODE"}]}})
REQUEST = requests.execute("team", "train-worker-0", "pytorch", ["sh", "-c", "a b&c"], stdin=True, terminal=False)


class FakeSocket:
    """A websocket whose messages are a script."""

    def __init__(self, *messages: tuple[int, str], protocol: str = "v5.channel.k8s.io") -> None:
        self.sock, self._other = socket.socketpair()
        self._other.send(b"x")  # there always is something to read
        self._messages = list(messages)
        self._protocol = protocol
        self.sent: list[bytes] = []

    def getheaders(self) -> Mapping[str, str]:
        return {"sec-websocket-protocol": self._protocol}

    def send_binary(self, data: bytes) -> None:
        self.sent.append(data)

    def recv_frame(self) -> ABNF:
        if not self._messages:
            return ABNF(fin=1, opcode=ABNF.OPCODE_CLOSE)
        channel, text = self._messages.pop(0)
        if channel < 0:
            raise WebSocketConnectionClosedException(text)
        if channel == PING:
            return ABNF(fin=1, opcode=ABNF.OPCODE_PING, data=text.encode())
        return ABNF(fin=int(channel != PART), opcode=ABNF.OPCODE_BINARY, data=bytes([channel]) + text.encode())

    def pong(self, data: bytes) -> None:
        self.sent.append(b"pong " + data)

    def shutdown(self) -> None:
        self.sock.close()
        self._other.close()


def answer_with(response: Any) -> Client:
    def answer(_request: object) -> Any:
        if isinstance(response, Exception):
            raise response
        return response

    return Client(FakeTransport(answer), host="test")


@contextmanager
def files(stdin: int | None = None) -> Iterator[tuple[CommandStreams, list[Any]]]:
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        yield CommandStreams(stdout=stdout.fileno(), stderr=stderr.fileno(), stdin=stdin), [stdout, stderr]


def run(response: Any, stdin: int | None = None) -> tuple[int, str, str]:
    with files(stdin) as (streams, outputs):
        code = run_command(answer_with(response), REQUEST, streams)
        for output in outputs:
            output.seek(0)
        return code, outputs[0].read().decode(), outputs[1].read().decode()


def test_output_goes_to_its_stream():
    assert run(FakeSocket((1, "a"), (2, "b"), (1, "c"), (3, SUCCESS))) == (0, "ac", "b")


def test_exit_code_is_that_of_the_command():
    causes = [{"reason": "ExitCode", "message": "7"}]
    status = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    assert run(FakeSocket((3, json.dumps(status))))[0] == 7


def give_input(response: FakeSocket) -> None:
    """Run a command whose input is `hello`."""
    reading, writing = os.pipe()
    os.write(writing, b"hello")
    os.close(writing)
    try:
        run(response, stdin=reading)
    finally:
        os.close(reading)


def test_input_is_sent_and_its_end():
    response = FakeSocket(*[(1, "")] * 10, (3, SUCCESS))
    give_input(response)
    assert response.sent == [b"\x00hello", b"\xff\x00"]


def test_input_needs_a_protocol_with_an_end():
    response = FakeSocket((3, SUCCESS), protocol="v4.channel.k8s.io")
    with pytest.raises(Refused, match="cannot pass on the end of standard input"):
        give_input(response)
    assert response.sent == []


def test_ping_is_answered():
    response = FakeSocket((PING, "x"), (3, SUCCESS))
    assert run(response)[0] == 0
    assert response.sent == [b"pong x"]


def test_request_names_container_streams_and_words():
    assert (REQUEST.verb, REQUEST.path) == ("get", "/api/v1/namespaces/team/pods/train-worker-0/exec")
    assert [value for name, value in REQUEST.query if name == "command"] == ["sh", "-c", "a b&c"]
    assert dict(REQUEST.query) | {"command": ""} == {
        "container": "pytorch", "stdin": "true", "stdout": "true", "stderr": "true", "command": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("response", "kind", "words"),
    [
        (FakeSocket((3, json.dumps({"status": "Failure", "message": "no such file"}))), Refused, "no such file"),
        (FakeSocket((1, "half")), Unreachable, "closed before the command ended"),
        (FakeSocket((3, "[")), Unreachable, "closed before the command ended"),
        (FakeSocket((-1, "broken")), Unreachable, "broken"),
        (FakeSocket((PART, "a")), Unreachable, "in parts"),
        (FakeSocket(*[(3, "x" * 1000)] * 100), Unreachable, "too long"),
        (FakeSocket((3, END_WITH.replace("CODE", "300"))), Refused, "did not run the command"),
        (FakeSocket((3, END_WITH.replace("CODE", "9" * 5000))), Refused, "did not run the command"),
        (ConnectionRefusedError("refused"), Unreachable, "refused"),
    ],
)
def test_command_without_an_exit_code_is_an_error(response: Any, kind: type[KfjobError], words: str):
    with pytest.raises(kind) as err:
        run(response)
    assert words in str(err.value)


@pytest.mark.parametrize(
    ("status", "message", "kind", "title"),
    [
        (403, 'User "ann" cannot get resource "pods/exec"', Forbidden, "not allowed to get pods/exec in"),
        (
            403,
            'User "ann" cannot create resource "pods/exec"',
            Forbidden,
            "not allowed to create pods/exec in namespace `team`",
        ),
        (404, 'pods "train-worker-0" not found', NotFound, "there is no pod `train-worker-0` in namespace `team`"),
    ],
)
def test_refused_request_names_the_missing_right_or_pod(status: int, message: str, kind: type[KfjobError], title: str):
    body = json.dumps({"kind": "Status", "message": message, "details": {"kind": "pods"}}).encode()
    with pytest.raises(kind) as err:
        run(WebSocketBadStatusException("handshake", status, resp_body=body))
    assert err.value.title.startswith(title)
