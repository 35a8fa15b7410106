"""Unpickles the metadata of torch's DCP, as data: it calls only the functions below, and changes only objects that it created.

A pickle is a program. A list of allowed globals is not enough: the opcode BUILD sets attributes of any object, also of a class
that the list allows, and so changes that class for the whole process. So this unpickler also has a list of allowed opcodes,
those of DCP's metadata in the pickle protocols 2 to 5. A class or function is never a value: the pickle gets a token, from
which only REDUCE and NEWOBJ make objects. BUILD sets only the fields of DCP's own dataclasses.
"""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import Any, ClassVar, NoReturn

import torch
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.filesystem import _StorageInfo

MAX_DIMENSIONS = 64
"""Dimensions of a tensor in a checkpoint's metadata; torch's own operators support 64."""
MAX_PATH = 4096
"""Characters of a path in a checkpoint's metadata; Linux opens no longer one."""


class UnknownTypeError(pickle.UnpicklingError):
    """The metadata holds something that DCP does not write."""


@dataclass(frozen=True, slots=True)
class _Function:
    """The token for a function, or for a class that pickle calls as one."""

    name: str
    call: Callable[..., object]
    arity: int | None = 1
    """Number of arguments; None means any."""


@dataclass(frozen=True, slots=True)
class _Class:
    """The token for a dataclass, whose instances pickle creates without a call of `__init__`."""

    kind: type


def _find_member(kind: object, name: object) -> object:
    """Return a memory format by its name, as `getattr` does. Python 3.11.0 to 3.11.3 pickle members of an enum with it."""
    if kind is not _MEMORY_FORMAT or type(name) is not str or name not in dcp._MEM_FORMAT_ENCODING.__members__:  # noqa: SLF001
        raise UnknownTypeError(f"getattr of {_describe(kind)}")
    return dcp._MEM_FORMAT_ENCODING[name]  # noqa: SLF001 -- DCP writes it


def _make_memory_format(number: object) -> object:
    return dcp._MEM_FORMAT_ENCODING(_check_type(number, (int,)))  # noqa: SLF001 -- DCP writes it


def _make_size(sizes: Any) -> object:
    if len(_check_type(sizes, (tuple, list))) > MAX_DIMENSIONS:
        raise UnknownTypeError(f"a tensor of more than {MAX_DIMENSIONS} dimensions")
    return torch.Size([_check_type(size, (int,)) for size in sizes])


def _get_layout(name: object) -> object:
    return torch.serialization._get_layout(_check_type(name, (str,)))  # type: ignore[no-untyped-call]  # noqa: SLF001


def _path_function(kind: type[PurePath]) -> _Function:
    def make_path(*parts: Any) -> object:
        if len(parts) + sum(len(_check_type(part, (str,))) for part in parts) > MAX_PATH:
            raise UnknownTypeError(f"a path of more than {MAX_PATH} characters")
        return kind(*parts)

    return _Function(kind.__name__, make_path, arity=None)


_DATACLASSES: tuple[Any, ...] = (
    dcp.BytesStorageMetadata,
    dcp.ChunkStorageMetadata,
    dcp.Metadata,
    dcp.MetadataIndex,
    dcp.StorageMeta,
    dcp.TensorProperties,
    dcp.TensorStorageMetadata,
    _StorageInfo,
)
_NONE = type(None)
_FIELD_TYPES: dict[tuple[type, str], tuple[type, ...]] = {
    (dcp.ChunkStorageMetadata, "offsets"): (torch.Size,),
    (dcp.ChunkStorageMetadata, "sizes"): (torch.Size,),
    (dcp.Metadata, "state_dict_metadata"): (dict,),
    (dcp.Metadata, "storage_data"): (dict,),
    (dcp.MetadataIndex, "fqn"): (str,),
    (dcp.MetadataIndex, "offset"): (torch.Size, _NONE),
    (dcp.MetadataIndex, "index"): (int, _NONE),
    (dcp.TensorStorageMetadata, "properties"): (dcp.TensorProperties,),
    (dcp.TensorStorageMetadata, "size"): (torch.Size,),
    (dcp.TensorStorageMetadata, "chunks"): (list,),
    (_StorageInfo, "relative_path"): (str,),
    (_StorageInfo, "offset"): (int,),
    (_StorageInfo, "length"): (int,),
}
"""The types of those fields that are hashed, or that name and measure a part of a file."""
_FIELDS: dict[type, dict[str, tuple[type, ...] | None]] = {
    kind: {field.name: _FIELD_TYPES.get((kind, field.name)) for field in fields(kind)} for kind in _DATACLASSES
}
_MEMORY_FORMAT = _Function("_MEM_FORMAT_ENCODING", _make_memory_format)
_GLOBALS: dict[tuple[str, str], object] = {
    **{(kind.__module__, kind.__qualname__): _Class(kind) for kind in _DATACLASSES},
    **{("torch", name): dtype for name, dtype in vars(torch).items() if isinstance(dtype, torch.dtype)},
    (dcp.__name__, "_MEM_FORMAT_ENCODING"): _MEMORY_FORMAT,
    ("builtins", "getattr"): _Function("getattr", _find_member, arity=2),
    ("torch", "Size"): _Function("torch.Size", _make_size),
    ("torch.serialization", "_get_layout"): _Function("_get_layout", _get_layout),
    **{(module, "PosixPath"): _path_function(PurePosixPath) for module in ("pathlib", "pathlib._local")},
    **{(module, "WindowsPath"): _path_function(PureWindowsPath) for module in ("pathlib", "pathlib._local")},
}
"""Everything that the metadata of DCP refers to, by the module and the name under which Python finds it."""
_PLAIN_OPCODES = (
    *("PROTO", "FRAME", "STOP", "MARK", "GLOBAL", "STACK_GLOBAL"),
    *("MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"),
    *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"),
    *("EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "TUPLE", "EMPTY_LIST", "EMPTY_DICT"),
)
"""Opcodes that only push a new value, a value of the memo, or what `find_class` returns."""


def _refusal(opcode: str) -> Callable[[Any], NoReturn]:
    def refuse(_unpickler: object) -> NoReturn:
        raise UnknownTypeError(f"the opcode {opcode}")

    return refuse


_REFUSED: dict[int, Callable[[Any], None]] = {ord(opcode.code): _refusal(opcode.name) for opcode in pickletools.opcodes}
_PLAIN = {code: pickle._Unpickler.dispatch[code] for code in (getattr(pickle, name)[0] for name in _PLAIN_OPCODES)}  # noqa: SLF001


class MetadataUnpickler(pickle._Unpickler):  # noqa: SLF001 -- only the Python version has a table of opcodes
    """Unpickles the metadata of DCP, and refuses everything else. `load` raises almost anything for a damaged pickle.

    Raises:
        UnknownTypeError: the pickle does what DCP's metadata never does.
    """

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]
    dispatch: ClassVar[Any] = _REFUSED | _PLAIN

    def find_class(self, module: str, name: str) -> Any:
        """Return a number type of torch, or the token for a class or function of DCP's metadata. It imports nothing."""
        if (module, name) not in _GLOBALS:
            raise UnknownTypeError(f"{module}.{name}")
        return _GLOBALS[module, name]

    def _call_function(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if type(function) is not _Function or type(arguments) is not tuple:
            raise UnknownTypeError(f"a call of {_describe(function)}")
        if function.arity not in (len(arguments), None):  # with two arguments, an enum creates a class
            raise UnknownTypeError(f"a call of {function.name} with {len(arguments)} arguments")
        self.stack.append(function.call(*arguments))

    def _create_instance(self) -> None:
        arguments, token = self.stack.pop(), self.stack.pop()
        if type(token) is not _Class or arguments != ():
            raise UnknownTypeError(f"a new object of {_describe(token)}")
        self.stack.append(object.__new__(token.kind))

    def _set_fields(self) -> None:
        state, instance = self.stack.pop(), self.stack[-1]
        kind = type(instance)
        if kind is dcp.TensorProperties and type(state) is tuple:
            instance.__setstate__(state)
            return
        known = _FIELDS.get(kind)
        if known is None or type(state) is not dict or not state.keys() <= known.keys():
            raise UnknownTypeError(f"attributes of {_describe(instance)}")
        for name, value in state.items():
            if (types := known[name]) is not None and type(value) not in types:
                raise UnknownTypeError(f"a {kind.__name__} whose {name} is {_describe(value)}")
        instance.__dict__.update(state)

    def _append_one(self) -> None:
        value = self.stack.pop()
        _check_type(self.stack[-1], (list,)).append(value)

    def _append_all(self) -> None:
        values = self.pop_mark()
        _check_type(self.stack[-1], (list,)).extend(values)

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        _check_type(self.stack[-1], (dict,))[_check_type(key, _KEYS)] = value

    def _set_items(self) -> None:
        items = self.pop_mark()
        target = _check_type(self.stack[-1], (dict,))
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[_check_type(key, _KEYS)] = value

    dispatch |= {
        pickle.REDUCE[0]: _call_function,
        pickle.NEWOBJ[0]: _create_instance,
        pickle.BUILD[0]: _set_fields,
        pickle.APPEND[0]: _append_one,
        pickle.APPENDS[0]: _append_all,
        pickle.SETITEM[0]: _set_item,
        pickle.SETITEMS[0]: _set_items,
    }


_KEYS = (str, int, dcp.MetadataIndex)
"""Types of keys: the hash of a deeply nested tuple would exhaust the stack of the process."""


def _check_type(value: Any, types: tuple[type, ...]) -> Any:
    if type(value) not in types:
        raise UnknownTypeError(f"{_describe(value)} instead of a {types[0].__name__}")
    return value


def _describe(value: object) -> str:
    """Return the name of a token's class or function, or the type of another value, which may be too large to print."""
    if isinstance(value, _Function):
        return value.name
    return value.kind.__name__ if isinstance(value, _Class) else f"a value of the type {type(value).__name__}"
