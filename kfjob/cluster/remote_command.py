"""Run a command in a container: the websocket of `pods/exec`, as k8s.io/apimachinery pkg/util/remotecommand defines it.

Each message begins with the number of its channel. Version 5 of the protocol can close the standard input of the command
(Kubernetes 1.30 and newer).
"""

from __future__ import annotations

import os
import select
import shutil
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec
from msgspec import Struct
from websocket import ABNF, WebSocketBadStatusException, WebSocketException

from kfjob.backends.base import CommandStreams
from kfjob.base.errors import Refused
from kfjob.base.http import ConnectionLost
from kfjob.base.parsing import ParseError, decode_json
from kfjob.base.text import is_whole
from kfjob.cluster.client import Client
from kfjob.cluster.errors import make_error, make_unreachable
from kfjob.cluster.requests import Request

STDIN, STDOUT, STDERR, STATUS, RESIZE = range(5)
CLOSE = 255
"""The channel that closes another one, in version 5."""
CHUNK = 4096
"""Bytes of standard input in a message: a socket that can be written takes as many at once, so both sides never wait."""
MAX_STATUS = 64 * 1024
"""Bytes of the status at the end of a command."""
MAX_EXIT_CODE = 255
RESIZE_SECONDS = 1.0
"""Time between two looks at the size of the terminal."""


class _Cause(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(Struct, frozen=True):
    causes: list[_Cause] = []


class _CommandStatus(Struct, frozen=True):
    """How a command has ended: the API's `Status`, whose cause `ExitCode` has the exit code."""

    status: str
    message: str = ""
    details: _Details | None = None


def run_command(client: Client, request: Request, streams: CommandStreams) -> int:
    """Send the request, pass on what the command reads and prints, and return its exit code.

    Raises:
        Forbidden, NotFound: the API server refuses the request.
        Refused: the container cannot start the command.
        Unreachable: the connection has broken.
    """
    try:
        with ExitStack() as stack:
            socket = client.open_websocket(request)
            stack.callback(socket.shutdown)  # its `close` leaves a broken connection open
            stack.enter_context(_raw_terminal(streams))
            can_close = "v5" in (socket.getheaders() or {}).get("sec-websocket-protocol", "")
            if not can_close and streams.stdin is not None and not streams.terminal:
                raise Refused("this cluster cannot pass on the end of standard input", hint="it needs Kubernetes 1.30")
            status = _exchange(socket, streams)
    except WebSocketBadStatusException as err:
        raise _explain_status(request, err) from err
    except (WebSocketException, ConnectionError, ssl.SSLError, TimeoutError) as err:
        raise make_unreachable(ConnectionLost(str(err) or type(err).__name__), client.host) from err
    return _read_exit_code(status, client.host)


def _explain_status(request: Request, err: WebSocketBadStatusException) -> Exception:
    body = err.resp_body or b""
    if b"cannot create resource" in body:  # Kubernetes 1.35 asks for `get`, then for `create`
        request = msgspec.structs.replace(request, verb="create")
    return make_error(request, err.status_code, body)


def _exchange(socket: Any, streams: CommandStreams) -> bytes:
    """Pass on all messages until the connection is closed; return the status that the server has sent."""
    stdin, unsent, status, size = streams.stdin, b"", b"", os.terminal_size((0, 0))
    outputs = {STDOUT: streams.stdout, STDERR: streams.stderr}
    while True:
        if streams.terminal and (newest := shutil.get_terminal_size()) != size:
            size = newest
            socket.send_binary(bytes([RESIZE]) + msgspec.json.encode({"Width": size.columns, "Height": size.lines}))
        has_message, has_input, has_room = _wait(socket.sock, None if unsent else stdin, writes=bool(unsent), streams=streams)
        if has_room:
            socket.send_binary(unsent)
            unsent = b""
        if has_input and stdin is not None:
            data = os.read(stdin, CHUNK)
            unsent = bytes([STDIN]) + data if data else bytes([CLOSE, STDIN])
            stdin = stdin if data else None
        if has_message:
            frame = socket.recv_frame()
            if frame.opcode == ABNF.OPCODE_CLOSE:
                return status
            if frame.opcode == ABNF.OPCODE_PING:
                socket.pong(frame.data)
            elif frame.opcode in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT, ABNF.OPCODE_CONT):
                status += _take_message(frame, outputs)
            if len(status) > MAX_STATUS:
                raise WebSocketException("the status of the command is too long")


def _take_message(frame: Any, outputs: Mapping[int, int]) -> bytes:
    """Write what the command has printed, or return a part of its status. The API server sends no message in parts."""
    if not frame.fin or frame.opcode == ABNF.OPCODE_CONT:
        raise WebSocketException("the server has sent a message in parts")
    data: bytes = frame.data
    channel, content = data[:1], data[1:]
    if channel and channel[0] in outputs:
        _write(outputs[channel[0]], content)
    return content if channel == bytes([STATUS]) else b""


def _wait(raw: Any, stdin: int | None, *, writes: bool, streams: CommandStreams) -> tuple[bool, bool, bool]:
    """Wait until there is a message, input, or room for what is to be sent; return which."""
    if isinstance(raw, ssl.SSLSocket) and raw.pending():  # it was decrypted with the message before
        return True, False, False
    readers = [raw] if stdin is None else [raw, stdin]
    readable, writable, _ = select.select(readers, [raw] if writes else [], [], RESIZE_SECONDS if streams.terminal else None)
    return raw in readable, stdin in readable, bool(writable)


def _write(output: int, data: bytes) -> None:
    while data:
        data = data[os.write(output, data) :]


@contextmanager
def _raw_terminal(streams: CommandStreams) -> Iterator[None]:
    """Let the terminal pass on each key, Ctrl-C too, while the command runs."""
    if not streams.terminal or streams.stdin is None:
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(streams.stdin)
    try:
        tty.setraw(streams.stdin)
        yield
    finally:
        termios.tcsetattr(streams.stdin, termios.TCSADRAIN, before)


def _read_exit_code(body: bytes, host: str) -> int:
    """Return the exit code that a status has.

    Raises:
        Refused: the command was not started.
        Unreachable: there is no status, because the connection ended early.
    """
    try:
        status = decode_json(body, _CommandStatus)
    except ParseError as err:
        raise make_unreachable(ConnectionLost("the connection was closed before the command ended"), host) from err
    if status.status == "Success":
        return 0
    causes = status.details.causes if status.details else []
    code = next((cause.message for cause in causes if cause.reason == "ExitCode"), "")
    if is_whole(code, digits=len(str(MAX_EXIT_CODE))) and int(code) <= MAX_EXIT_CODE:
        return int(code)
    raise Refused("the container did not run the command", cause=status.message)
