"""What the Python script of a job says about its processes, read from its text; nothing of it is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct

_OWN_ADDRESS = r"(?!['\"]?(?:localhost|127\.0\.0\.1|::1))"
_CONNECTION = (
    rf"tcp://{_OWN_ADDRESS}|environ\[['\"]MASTER_ADDR['\"]\] *=[ ]*+{_OWN_ADDRESS}\S|"
    rf"(?:setdefault|putenv)\(['\"]MASTER_ADDR['\"],[ ]*+{_OWN_ADDRESS}|init_method *= *f?['\"]file://|"
    r"\bjax\.distributed\.initialize\(|\bray\.init\(\s*+(?:f?['\"]|[^()]{0,200}?\baddress *=)"
)
"""A script that gives the address of rank 0 itself, other than the address of its own machine, or that joins a cluster."""
_TRAINING = frozenset(
    {"init_process_group", "DistributedDataParallel", "FullyShardedDataParallel", "fully_shard", "init_device_mesh"}
    | {"Accelerator", "Fabric"}
)
"""Names with which a program trains together with other processes, by torch.distributed."""
_PROCESSES = r"\bspawn\(|\bmultiprocessing\b|\bsubprocess\b|\bnotebook_launcher\(|\belastic_launch\("
_LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric")
_LIGHTNING_CLASSES = ("Trainer", "Fabric")


class LightningCall(Struct, frozen=True):
    """A call of Lightning's `Trainer` or `Fabric`."""

    name: str
    line: int
    nodes: int | None
    """The literal value of `num_nodes`, or 1 without one; None for a value that only the program computes."""


class Script(Struct, frozen=True, dict=True):
    """The Python script that a job starts."""

    path: str
    text: str

    @property
    def connects_nodes(self) -> bool:
        """Whether the script itself gives its processes an address on another machine."""
        return re.search(_CONNECTION, self.text) is not None

    @property
    def starts_processes(self) -> bool:
        """Whether the script may start more processes itself."""
        return re.search(_PROCESSES, self.text) is not None or bool(self.lightning_calls)

    @cached_property
    def trains_together(self) -> bool:
        """Whether the script trains with torch.distributed or a library's trainer; False if it cannot be parsed."""
        own = {node.name for node in self._nodes if isinstance(node, ast.ClassDef)}
        used = {_read_name(node) for node in self._nodes if isinstance(node, ast.Name | ast.Attribute | ast.alias)}
        called = {_read_name(node.func) for node in self._nodes if isinstance(node, ast.Call)}
        is_deepspeed = "deepspeed" in used and "initialize" in called
        return bool(_TRAINING & used) or is_deepspeed or any(name.endswith("Trainer") for name in called - own)

    @cached_property
    def _nodes(self) -> tuple[ast.AST, ...]:
        try:
            return tuple(ast.walk(ast.parse(self.text)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ()

    @cached_property
    def lightning_calls(self) -> tuple[LightningCall, ...]:
        """The calls of Lightning's classes; none if the text cannot be parsed."""
        if not any(name in self.text for name in _LIGHTNING):
            return ()
        nodes = self._nodes
        names = dict(name for node in nodes for name in _list_imported(node))
        calls = (_read_call(node, names) for node in nodes if isinstance(node, ast.Call))
        return tuple(call for call in calls if call)


def _read_name(node: ast.AST) -> str:
    """Return the last part of a name: `init_process_group` of `dist.init_process_group`; "" for anything else."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.alias(name=name):
            return name.rpartition(".")[2]
        case _:
            return ""


def _list_imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that an import of Lightning binds, each with the class, or "" for a module."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.partition(".")[0] in _LIGHTNING:
                yield alias.asname or alias.name.partition(".")[0], ""
    elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in _LIGHTNING and not node.level:
        for alias in node.names:
            yield alias.asname or alias.name, alias.name if alias.name in _LIGHTNING_CLASSES else ""


def _read_call(call: ast.Call, names: dict[str, str]) -> LightningCall | None:
    function, attribute = call.func, ""
    while isinstance(function, ast.Attribute):
        attribute, function = attribute or function.attr, function.value
    if not isinstance(function, ast.Name) or function.id not in names:
        return None
    name = attribute or names[function.id]
    if name not in _LIGHTNING_CLASSES:
        return None
    values = {keyword.arg: keyword.value for keyword in call.keywords}
    value = values.get("num_nodes", ast.Constant(None if None in values else 1))
    nodes = value.value if isinstance(value, ast.Constant) else None
    return LightningCall(name, call.lineno, nodes if isinstance(nodes, int) else None)
