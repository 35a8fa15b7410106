"""Run the credential plugin of a kubeconfig (`user.exec`, such as `aws eks get-token`) within limits.

Fields and rules are those of client-go (plugin/pkg/client/auth/exec) and of `client.authentication.k8s.io/v1`.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from kfjob.backends.kubeconfig import Cluster
from kfjob.base.errors import Forbidden
from kfjob.base.parsing import ParseError, ShapeError, decode_json
from kfjob.base.programs import Output, TooMuchOutputError, run_program
from kfjob.base.units import MIB
from kfjob.redaction import Redactor

MAX_CREDENTIAL_BYTES = MIB
"""Size of a file with a token, a certificate or a key that a kubeconfig names; all public authorities have 220 KiB."""
PLUGIN_SECONDS = 30.0
"""Timeout of a non-interactive credential plugin."""
LOGIN_SECONDS = 300.0
"""Timeout of an interactive credential plugin, which may ask the user to log in."""
MAX_BYTES = MIB
"""Size of a credential plugin's output; a token of EKS has 2 KiB."""
_CAUSE_LINES = 10
"""Last lines of a credential plugin's output that an error quotes."""
_EXTENSION = "client.authentication.k8s.io/exec"


class Variable(Struct, frozen=True):
    """An environment variable of a plugin."""

    name: str
    value: str = ""


class Plugin(Struct, frozen=True, rename="camel"):
    """The field `exec` of a user. `env: null` and `args: null` are what `aws eks update-kubeconfig` may write."""

    command: str
    api_version: str
    args: list[str] | None = None
    env: list[Variable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = False
    interactive_mode: str | None = None


class Credential(Struct, frozen=True, rename="camel"):
    """The status of an ExecCredential."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str | None = None

    @property
    def expiry(self) -> float | None:
        """Seconds since 1970; None if it is not known."""
        return datetime.fromisoformat(self.expiration_timestamp).timestamp() if self.expiration_timestamp else None


class _ExecCredential(Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: Credential = field(default_factory=Credential)


def get_credential(settings: object, *, cluster: Cluster, authority: str, folder: Path, location: str) -> Credential:
    """Return the credential that a plugin prints. `folder` is that of the kubeconfig, `authority` the cluster's in PEM.

    Raises:
        Forbidden: the plugin cannot be started, fails, exceeds a limit, or prints no credential.
    """
    try:
        plugin = msgspec.convert(settings, Plugin)
    except msgspec.ValidationError as err:
        raise Forbidden(
            "the kubeconfig's credential plugin is not valid", location=location, cause=f"user.exec: {err}"
        ) from None
    return _Call(plugin, _describe_cluster(cluster, authority) if plugin.provide_cluster_info else None, folder, location).get()


def _describe_cluster(cluster: Cluster, authority: str) -> dict[str, Any]:
    """Return the cluster as `spec.cluster` of an ExecCredential."""
    plain = msgspec.structs.replace(cluster, certificate_authority=None, extensions=None)
    description: dict[str, Any] = msgspec.to_builtins(plain)
    if authority:
        description["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
    for extension in cluster.extensions or ():
        if extension.get("name") == _EXTENSION:
            description["config"] = extension.get("extension")
    return description


def is_header_text(text: str) -> bool:
    """Return whether a text may be a credential in a header: ASCII without control characters."""
    return text.isascii() and text.isprintable()


class _Call(Struct, frozen=True):
    """One run of a plugin."""

    plugin: Plugin
    cluster: dict[str, Any] | None
    folder: Path
    location: str

    def get(self) -> Credential:
        output = self._run()
        if output.code:
            cause = f"it exited with code {output.code}"
            lines = [line for line in Redactor().text(output.stderr).splitlines() if line.strip()]
            raise self._fail("\n".join([cause, *lines[-_CAUSE_LINES:]]))
        try:
            answer = decode_json(output.stdout, _ExecCredential)
            _ = answer.status.expiry
        except ShapeError as err:
            raise self._fail(f"its output is not an ExecCredential: {err}") from None
        except ParseError:
            raise self._fail("its output is not JSON") from None
        except (ValueError, OverflowError):
            raise self._fail("the `expirationTimestamp` of its output is not a time") from None
        return self._check(answer)

    def _check(self, answer: _ExecCredential) -> Credential:
        if (answer.kind, answer.api_version) != ("ExecCredential", self.plugin.api_version):
            expected = f"ExecCredential of {self.plugin.api_version}"
            raise self._fail(f"its output is a `{answer.kind[:80]}` of `{answer.api_version[:80]}`, not an {expected}")
        status = answer.status
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise self._fail("its output has only one of clientCertificateData and clientKeyData")
        if not status.token and not status.client_certificate_data:
            raise self._fail("its output has neither a token nor clientCertificateData")
        if not is_header_text(status.token):
            raise self._fail("its token has characters that no token has")
        return status

    def _run(self) -> Output:
        interactive = self._is_interactive()
        seconds = LOGIN_SECONDS if interactive else PLUGIN_SECONDS
        spec = {"interactive": interactive} | ({"cluster": self.cluster} if self.cluster is not None else {})
        info = {"apiVersion": self.plugin.api_version, "kind": "ExecCredential", "spec": spec}
        variables = {variable.name: variable.value for variable in self.plugin.env or ()}
        environment = {**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        argv = [self._find_command(), *(self.plugin.args or ())]
        try:
            return run_program(argv, seconds=seconds, max_bytes=MAX_BYTES, environment=environment, asks_user=interactive)
        except TimeoutError:
            raise self._fail(f"it has not ended after {seconds:g} s") from None
        except TooMuchOutputError:
            raise self._fail(f"it printed more than {MAX_BYTES // MIB} MiB") from None
        except (OSError, ValueError) as err:
            raise self._fail(f"it cannot be started: {err}", self.plugin.install_hint) from None

    def _is_interactive(self) -> bool:
        mode, terminal = self.plugin.interactive_mode or "IfAvailable", bool(sys.stdin) and sys.stdin.isatty()
        if mode == "Always" and not terminal:
            raise self._fail("it needs a terminal (`interactiveMode: Always`), and standard input is not a terminal")
        return terminal and mode != "Never"

    def _find_command(self) -> str:
        """Return the command; one with a `/` is relative to the kubeconfig, as for kubectl."""
        return str(self.folder / self.plugin.command) if os.sep in self.plugin.command else self.plugin.command

    def _fail(self, cause: str, hint: str | None = None) -> Forbidden:
        command = Redactor().text(shlex.join([self.plugin.command, *(self.plugin.args or ())]))[:200]
        return Forbidden(
            "the kubeconfig's credential plugin gave no credentials",
            location=self.location,
            cause=f"`{command}`: {cause}",
            hint=hint or "`kubectl get pods` runs the same plugin; is it installed and logged in?",
        )


def needs_renewal(expiry: float | None, loaded: float) -> bool:
    """Return whether a credential is about to expire. One that is short-lived is not renewed with each request."""
    margin = 30.0
    return expiry is not None and time.time() >= max(expiry - margin, loaded + margin)
