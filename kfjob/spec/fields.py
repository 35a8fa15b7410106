"""Types of fields that several parts of a spec use, and their validators."""

import re
import shlex
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from kfjob.base.units import parse_quantity
from kfjob.objects import names
from kfjob.shell import syntax as shell_syntax
from kfjob.validation.spec_model import SpecModel, field_error

_LARGEST_QUANTITY = 2.0**63
"""Kubernetes cuts larger quantities to this number."""
ENV_NAME_PATTERN = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


def find_duplicate(items: Iterable[object]) -> int | None:
    """Return the index of the first item that equals an earlier one; None if all items differ."""
    earlier: list[object] = []
    for index, item in enumerate(items):
        if item in earlier:
            return index
        earlier.append(item)
    return None


def _is_amount(text: str) -> bool:
    """Return whether a text is a quantity of something: neither negative nor beyond every machine."""
    try:
        return not text.startswith("-") and parse_quantity(text) < _LARGEST_QUANTITY
    except ValueError:
        return False


def _check_quantity(value: object) -> object:
    if not isinstance(value, int | float | str):
        return value
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if not _is_amount(text):
        raise field_error("quantity", f"`{text}` is not a Kubernetes quantity", hint="for example `2`, `500m`, `16Gi`")
    return text


Quantity = Annotated[str, BeforeValidator(_check_quantity, json_schema_input_type=str | int | float)]


def _check_size(value: str) -> str:
    if value.endswith(("m", "u", "n")):
        part = {"m": "thousandths", "u": "millionths", "n": "billionths"}[value[-1]]
        title = f"`{value}` is a number of {part} of a byte"
        raise field_error("size", title, hint=f"write `{value[:-1]}Mi` or `{value[:-1]}M`")
    return value


Size = Annotated[Quantity, AfterValidator(_check_size)]
"""A quantity of bytes."""


UNLIMITED = "unlimited"


def _check_shared_memory(value: object) -> object:
    if value == UNLIMITED:
        return value
    text = _check_quantity(value)
    return _check_size(text) if isinstance(text, str) else text


SharedMemory = Annotated[str, BeforeValidator(_check_shared_memory, json_schema_input_type=str | int | float)]
"""A quantity of bytes, or `unlimited`."""


def _check_file_mode(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(r"0?o?[0-7]{3,4}", value):
        return int(value.replace("o", ""), 8)
    return value


FileMode = Annotated[int, BeforeValidator(_check_file_mode, json_schema_input_type=int | str), Field(ge=0, le=0o777)]
"""The permissions of a file: a number as Kubernetes writes it, or an octal text such as `"0755"`."""


def _convert_env_value(value: object) -> object:
    if isinstance(value, bool):
        text = str(value).lower()
        raise field_error(
            "ambiguous_text", f"the text of the value `{text}` is ambiguous", hint=f'quote it, for example "{text}"'
        )
    return str(value) if isinstance(value, int | float) else value


EnvValue = Annotated[str, BeforeValidator(_convert_env_value, json_schema_input_type=str | int | float)]


def _split_command(value: object) -> object:
    """Return the words of a command.

    Raises:
        PydanticCustomError: the command needs a shell, or its quotes are not closed.
    """
    if not isinstance(value, str):
        words = [word for word in value if isinstance(word, str)] if isinstance(value, list | tuple) else []
        _refuse_shell_syntax(shell_syntax.find_in_words(words))
        return value
    line = shell_syntax.join_lines(value)
    try:
        words = shlex.split(line)
    except ValueError as error:
        syntax = shell_syntax.find_in_line(line)
        also = {"detail": f"it also needs a shell for {syntax.phrase}"} if syntax else {}
        raise field_error("command_quotes", f"cannot split the command into words: {str(error).lower()}", **also) from error
    _refuse_shell_syntax(shell_syntax.find_in_line(line))
    return words


def _refuse_shell_syntax(syntax: shell_syntax.ShellSyntax | None) -> None:
    if syntax:
        raise field_error("command_shell", syntax.title, hint=syntax.hint)


Command = Annotated[tuple[str, ...], BeforeValidator(_split_command, json_schema_input_type=str | tuple[str, ...])]
"""The words of a command, or one line that is split as a shell does."""


def _split_arguments(value: object) -> object:
    """Return the words of a program's arguments.

    Raises:
        PydanticCustomError: the line needs a shell, or its quotes are not closed.
    """
    if not isinstance(value, str):
        return value
    line = shell_syntax.join_lines(value)
    _refuse_shell_syntax(shell_syntax.find_in_line(f"PROGRAM {line}"))
    try:
        return shlex.split(line)
    except ValueError as error:
        raise field_error("command_quotes", f"cannot split the arguments into words: {str(error).lower()}") from error


Arguments = Annotated[tuple[str, ...], BeforeValidator(_split_arguments, json_schema_input_type=str | tuple[str, ...])]
"""The arguments of a program as words, or one line that is split as a shell does."""


def _check_dns_label(value: str) -> str:
    if not names.is_dns_label(value):
        raise field_error("dns_1123", f"`{value}` is not a DNS-1123 label (at most 63 lower-case letters, digits and `-`)")
    return value


DnsLabel = Annotated[str, AfterValidator(_check_dns_label)]
"""A DNS-1123 label: the name of a namespace, a volume, a port or a container."""


def _check_object_name(value: str) -> str:
    if not names.DNS_1123_SUBDOMAIN.fullmatch(value) or len(value) > names.MAX_NAME:
        raise field_error(
            "object_name", f"`{value}` is not a valid Kubernetes object name (lower-case letters, digits, `-` and `.`)"
        )
    return value


ObjectName = Annotated[str, AfterValidator(_check_object_name)]
"""A DNS-1123 subdomain: the name of most objects, such as claims, secrets and priority classes."""


def _check_runtime_name(value: str) -> str:
    kind, slash, name = value.rpartition("/")
    if kind != ("trainingruntime" if slash else "") or not names.DNS_1123_SUBDOMAIN.fullmatch(name):
        hint = "write the name of a ClusterTrainingRuntime, or `trainingruntime/NAME`"
        raise field_error("runtime", f"`{value}` is not the name of a runtime", hint=hint)
    return value


RuntimeName = Annotated[str, AfterValidator(_check_runtime_name)]
"""A runtime of Kubeflow Trainer: `NAME` of a ClusterTrainingRuntime, or `trainingruntime/NAME`."""


def _check_absolute_path(value: str) -> str:
    if not value.startswith("/"):
        raise field_error("absolute_path", f"`{value}` is not an absolute path")
    return value.rstrip("/") or "/"


AbsolutePath = Annotated[str, AfterValidator(_check_absolute_path)]


def _check_label_value(value: str) -> str:
    if not names.is_label_value(value):
        raise field_error("label_value", f"`{value}` is not a valid label value (at most 63 letters, digits, `-`, `_` and `.`)")
    return value


LabelValue = Annotated[EnvValue, AfterValidator(_check_label_value)]


def _check_metadata_key(value: str) -> str:
    if not names.is_qualified(value):
        raise field_error(
            "metadata_key", f"`{value}` is not a valid key of a label or an annotation", hint="for example `example.com/team`"
        )
    return value


MetadataKey = Annotated[str, AfterValidator(_check_metadata_key)]


class SecretKey(SpecModel):
    """One entry of a secret in the job's namespace."""

    secret: ObjectName
    key: str


def _split_secret_key(value: object) -> object:
    if not isinstance(value, str):
        return value
    secret, slash, key = value.partition("/")
    if not slash or not key:
        raise field_error(
            "secret_key", "a spec names the secret that holds a key, never the key itself", hint="write `SECRET/KEY`"
        )
    return {"secret": secret, "key": key}


SecretRef = Annotated[SecretKey, BeforeValidator(_split_secret_key, json_schema_input_type=str | SecretKey)]
"""`SECRET/KEY`, or a mapping with `secret` and `key`."""
