"""Where the text of a template is read: by Kubernetes, by a program in the pod, or by a shell there. Pure.

This decides about references. The shell of a pod replaces `$NAME` itself, and nobody replaces it in `replicas`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import yaml
from msgspec import Struct
from msgspec.structs import replace

from kfjob.base.shells import find_own_script, find_scripts, is_shell
from kfjob.shell.variables import Reader
from kfjob.source.manifest_yaml import is_merge, list_merged

_SHELL_FILE = re.compile(r"(?:.*\.(?:sh|bash|ksh|zsh))|[^.]*")
"""Key of a ConfigMap's entry that can be a script: with a shell's suffix, or without a suffix."""
_SHEBANG = re.compile(r"#!\s*(\S+)(?:[ \t]+(?:-\S+[ \t]+)*(\w+))?")
_EMPTY_SUBTREES = frozenset(("annotations", "labels", "command", "args", "data", "stringData", "lifecycle", "httpHeaders"))
_EMPTY_FIELDS = frozenset(("value", "subPath", "storageClassName", "priorityClassName", "schedulerName", "serviceAccountName"))
"""Fields in which Kubernetes takes an empty text, or takes it as unset."""


class PodEnv(Struct, frozen=True, kw_only=True):
    """The names that a container defines. A value is None if it is not known here."""

    values: Mapping[str, str | None]
    is_open: bool = False  # `envFrom` may define any name


_NO_ENV = PodEnv(values=MappingProxyType({}))


class Place(Struct, frozen=True, kw_only=True):
    """Where a value is."""

    reader: Reader = Reader.KUBERNETES
    is_document: bool = False
    is_data: bool = False  # the entries of a ConfigMap or Secret
    is_env: bool = False
    is_hook: bool = False  # the commands of `lifecycle`, in which the kubelet replaces nothing
    is_kubelet_text: bool = False  # the kubelet turns `$$` into `$`, and replaces `$(NAME)`
    may_be_empty: bool = False
    is_in_flow: bool = False  # inside `[…]` or `{…}`
    scripts: frozenset[int] = frozenset()
    """The indexes of the words of a `command` or `args` that a shell reads."""
    field: str = ""
    env: PodEnv = _NO_ENV

    def enter_flow(self, node: yaml.CollectionNode) -> Place:
        """Return the place of the items of a list or mapping in the file."""
        return self if self.is_in_flow or not node.flow_style else replace(self, is_in_flow=True)

    def enter_item(self, index: int) -> Place:
        """Return the place of an item of a list."""
        if not self.scripts:
            return self
        return replace(self, scripts=frozenset(), reader=Reader.SHELL if index in self.scripts else self.reader)

    def enter(self, key: yaml.Node, mapping: yaml.MappingNode, value: yaml.Node, pods: Pods) -> Place:
        """Return the place of a value of the mapping, or of a mapping that is merged into it."""
        if not isinstance(key, yaml.ScalarNode):
            return self
        name = key.value
        if self.is_document:
            return self if name == "items" else _enter_document(name, pods)
        if self.is_data:
            is_script = isinstance(value, yaml.ScalarNode) and is_shell_script(name, value.value)
            return replace(self, is_data=False, reader=Reader.SHELL if is_script else Reader.PROGRAM, field=name)
        may_be_empty = self.may_be_empty or name in _EMPTY_SUBTREES or name in _EMPTY_FIELDS
        place = replace(self, field=name, may_be_empty=may_be_empty, env=pods.read(mapping) or self.env)
        if self.is_env:
            reader = Reader.PROGRAM if name == "value" else Reader.KUBERNETES
            place = replace(place, is_env=False, reader=reader, env=pods.read_others(mapping, place.env))
        elif name in ("command", "args") and self.reader is Reader.KUBERNETES:
            reader, scripts = pods.find_scripts(mapping, name)
            place = replace(place, reader=reader, scripts=scripts, is_kubelet_text=not self.is_hook)
        elif name == "env" and isinstance(value, yaml.SequenceNode):
            place = replace(place, is_env=True, is_kubelet_text=True)
        elif name == "annotations":
            place = replace(place, reader=Reader.PROGRAM)
        elif name == "lifecycle":
            place = replace(place, is_hook=True)
        return place


def _enter_document(key: str, pods: Pods) -> Place:
    """Return the place of a part of an object."""
    if key in ("metadata", "spec", "apiVersion", "kind"):
        return Place(field=key)
    return Place(reader=Reader.PROGRAM, is_data=key in ("data", "stringData"), may_be_empty=True, field=key, env=pods.all_env)


DOCUMENT = Place(reader=Reader.PROGRAM, is_document=True, may_be_empty=True)


class Pods:
    """The containers of all documents."""

    def __init__(self, nodes: Iterable[yaml.Node], render: Callable[[str], str]) -> None:
        """Find the containers; `render` returns the text of a scalar with its references replaced."""
        self._render = render
        self._envs = {id(node): self._read(node) for node in _find_containers(nodes)}
        self.all_env = _join(list(self._envs.values()))
        """What any container defines, for scripts that any of them can run."""

    def read(self, mapping: yaml.MappingNode) -> PodEnv | None:
        """Return what a container defines; None for another mapping."""
        return self._envs.get(id(mapping))

    def read_others(self, entry: yaml.MappingNode, env: PodEnv) -> PodEnv:
        """Return what a container defines beside one entry of its `env`."""
        name = _to_fields(entry).get("name")
        own = self._render(name.value) if isinstance(name, yaml.ScalarNode) else ""
        return replace(env, values={key: value for key, value in env.values.items() if key != own})

    def find_scripts(self, mapping: yaml.MappingNode, field: str) -> tuple[Reader, frozenset[int]]:
        """Return who reads the words of `command` or `args`, and the indexes of those that a shell reads instead.

        Without a command, the image's own entry point reads the arguments. It may run them as a command, or with a shell.
        """
        fields = _to_fields(mapping)
        command, args = self._render_words(fields.get("command")), self._render_words(fields.get("args"))
        hidden = ["sh"] if not command and find_own_script(["sh", *args]) is not None else []
        words = [*hidden, *command, *args]
        start = len(hidden) + (len(command) if field == "args" else 0)
        scripts = frozenset(index - start for index in find_scripts(words) if index >= start)
        is_known = command or any(map(is_shell, words))
        return Reader.KUBERNETES if is_known else Reader.PROGRAM, scripts

    def _render_words(self, node: yaml.Node | None) -> list[str]:
        items = node.value if isinstance(node, yaml.SequenceNode) else ()
        return [self._render(item.value) if isinstance(item, yaml.ScalarNode) else "" for item in items]

    def _read(self, container: yaml.MappingNode) -> PodEnv:
        fields = _to_fields(container)
        values: dict[str, str | None] = {}
        entries = fields.get("env")
        for entry in entries.value if isinstance(entries, yaml.SequenceNode) else ():
            item = _to_fields(entry)
            name, value = item.get("name"), item.get("value")
            if isinstance(name, yaml.ScalarNode):
                text = self._render(value.value) if isinstance(value, yaml.ScalarNode) else "$("
                values[self._render(name.value)] = None if "$(" in text else text
        return PodEnv(values=values, is_open="envFrom" in fields)


def _join(envs: Sequence[PodEnv]) -> PodEnv:
    values: dict[str, str | None] = {}
    for env in envs:
        for name, value in env.values.items():
            values[name] = value if values.get(name, value) == value else None
    return PodEnv(values=values, is_open=any(env.is_open for env in envs))


def _to_fields(node: yaml.Node) -> dict[str, yaml.Node]:
    """Return the values of a mapping by key, with those of merged mappings; a later one wins."""
    fields: dict[str, yaml.Node] = {}
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if is_merge(key):
            for merged in list_merged(value):
                fields |= _to_fields(merged)
        elif isinstance(key, yaml.ScalarNode):
            fields[key.value] = value
    return fields


def _find_containers(nodes: Iterable[yaml.Node]) -> Iterator[yaml.MappingNode]:
    """Yield the mappings with `env` or `envFrom`, which can be merged into them."""
    rest = list(nodes)
    while rest:
        node = rest.pop()
        if isinstance(node, yaml.SequenceNode):
            rest += node.value
        elif isinstance(node, yaml.MappingNode):
            fields = _to_fields(node)
            if "env" in fields or "envFrom" in fields:
                yield node
            rest += fields.values()


def is_shell_script(key: str, text: str) -> bool:
    """Return whether an entry of a ConfigMap is a shell's script: by its first line, or by its key."""
    if shebang := _SHEBANG.match(text):
        path, argument = shebang[1].rpartition("/")[2], shebang[2]
        return is_shell(argument or "") if path == "env" else is_shell(path)
    return _SHELL_FILE.fullmatch(key) is not None and ("\n" in text or "." in key)
