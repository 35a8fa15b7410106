"""Parse JSON and TOML that kfjob did not just write: of files, servers, programs and log lines.

Parsers recurse for each level of nesting, so a short text can exhaust the interpreter's stack, in the parser or in the first
function that walks the value. Every module parses with these functions, and a text that they refuse is one `ParseError`.
`kfjob.source.yaml_loader` does the same for YAML.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from pathlib import Path
from typing import Any, TypeVar

from kfjob.base.common_types import JsonObject
from kfjob.base.units import MIB

MAX_DEPTH = 200
"""Nested levels of a JSON or TOML text; the deepest object of Kubernetes has a tenth of them."""
MAX_DOCUMENT_BYTES = 64 * MIB
"""Size of a file with one document, such as `status.json`; the snapshot of a job with 10,000 pods has a tenth of it."""
MAX_KUBECONFIG_BYTES = 16 * MIB
"""Size of a kubeconfig; one with the certificates of 1000 clusters has 5 MiB."""
MAX_TEXT = 4 * MIB
"""Characters of a spec, a template or an env file; etcd takes 1.5 MiB for an object."""
_PIECE = 4 * MIB
MAX_CAUSE = 200
"""Characters of a parser's message in an error."""
_HALF_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""Escapes of characters beyond 16 bits, which come in pairs; one alone cannot be written or printed."""
T = TypeVar("T")


class ParseError(ValueError):
    """A text is not JSON or TOML, or is nested too deeply."""


class ShapeError(ParseError):
    """A JSON text holds a value of another type."""


def read_document(file: Path, *, max_bytes: int = MAX_DOCUMENT_BYTES) -> bytes:
    """Return the content of a file that holds one document.

    Raises:
        OSError: the file cannot be read.
        ParseError: it is not a regular file, such as a FIFO, which would wait without an end; or it is too large.
    """
    opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # opening a FIFO would wait for its writer
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise ParseError(f"`{file.name}` is not a regular file")
        content = _read_pieces(opened, max_bytes + 1)
    finally:
        os.close(opened)
    if len(content) > max_bytes:
        raise ParseError(f"`{file.name}` is larger than {max_bytes // MIB} MiB")
    return content


def _read_pieces(file: int, size: int) -> bytes:
    """Return at most `size` bytes; a single read of many files in /proc returns only a part."""
    content = bytearray()
    while len(content) < size and (piece := os.read(file, min(size - len(content), _PIECE))):
        content += piece
    return bytes(content)


def read_named_text(file: Path | None, *, max_characters: int = MAX_TEXT, newline: str | None = None) -> str:
    """Return the text of a file that the user has named, or of standard input for None. It may be a pipe, such as `<(…)`.

    A pipe is read until its writers close it; Ctrl-C ends the wait. With the newline "", carriage returns stay as they are.

    Raises:
        OSError: the file cannot be read.
        UnicodeDecodeError: it is not UTF-8.
        ParseError: it is too large.
    """
    if file is None:
        text = sys.stdin.read(max_characters + 1)
    else:
        with file.open(encoding="utf-8", newline=newline) as opened:
            text = opened.read(max_characters + 1)
    if len(text) > max_characters:
        raise ParseError(f"it is larger than {max_characters // MIB} MiB")
    return text


def parse_json(text: str | bytes | bytearray) -> Any:
    """Return the value of a JSON text.

    Raises:
        ParseError: the text is not JSON, or is nested too deeply.
    """
    try:
        text = text if isinstance(text, str) else text.decode()
        value = json.loads(text)
        if _HALF_SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ParseError("it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ParseError(f"it is not UTF-8: {error.reason} at byte {error.start}") from error
    except ValueError as error:  # also text that no file can hold, and numbers with thousands of digits
        raise ParseError(f"it is not JSON: {str(error)[:MAX_CAUSE]}") from error
    return value if text.count("{") + text.count("[") <= MAX_DEPTH else _check_depth(value)


def parse_json_object(text: str | bytes | bytearray) -> JsonObject:
    """Return the value of a JSON text that holds an object.

    Raises:
        ParseError: as `parse_json`; a `ShapeError` if it is another value.
    """
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ShapeError("it is not a JSON object")
    return value


def decode_json(text: str | bytes | bytearray, shape: type[T]) -> T:
    """Return the value of a JSON text as `shape`: a struct, or another type that msgspec knows.

    Raises:
        ParseError: the text is not JSON, or is nested too deeply; a `ShapeError` if it does not fit the shape.
    """
    import msgspec  # `kfjob doctor` runs in images without it

    try:
        return msgspec.json.decode(text, type=shape)
    except RecursionError:
        raise ParseError("it is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise ShapeError(str(error)[:MAX_CAUSE]) from error
    except UnicodeDecodeError as error:
        raise ParseError(f"it is not UTF-8: {error.reason} at byte {error.start}") from error
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise ParseError(f"it is not JSON: {str(error)[:MAX_CAUSE]}") from error


def parse_toml(text: str | bytes) -> JsonObject:
    """Return the tables of a TOML text.

    Raises:
        ParseError: the text is not TOML, or is nested too deeply.
    """
    import tomllib  # few commands read TOML

    try:
        tables = tomllib.loads(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise ParseError("it is nested too deeply") from None
    except ValueError as error:
        raise ParseError(str(error)[:MAX_CAUSE]) from error
    _check_depth(tables)
    return tables


def _check_depth(value: Any) -> Any:
    """Return the value.

    Raises:
        ParseError: it is nested too deeply.
    """
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ParseError("it is nested too deeply")
        items = (item for part in level for item in (part.values() if isinstance(part, dict) else part))
        level = [item for item in items if isinstance(item, (dict, list))]
    return value
