"""Map the statuses of the API server to errors of kfjob. No other module does this.

no answer         ConnectionLost -> Unreachable
400 422 other 4xx                   Refused, with the causes that the API names
401                                 Forbidden
403                                 Forbidden if a permission is missing, Refused by a webhook, a quota or pod security
404                                 Refused if the resource itself does not exist (no controller), else NotFound
409                                 AlreadyExists on create, else Conflict, which is a Refused
410                                 Expired: the resource version is too old, list again
429 and 5xx                         WebhookDown if a webhook does not answer, else BackendError; after the retries
"""

from __future__ import annotations

import re

from msgspec import Struct

from kfjob.base.errors import (
    AlreadyExists,
    BackendError,
    Forbidden,
    KfjobError,
    NodeUnreachable,
    NotFound,
    NotInstalled,
    Refused,
    Unreachable,
)
from kfjob.base.http import ConnectionLost
from kfjob.base.parsing import ParseError, decode_json
from kfjob.base.text import join_lines
from kfjob.cluster.requests import Request
from kfjob.kinds.registry import KINDS
from kfjob.redaction import Redactor, cut_text

MESSAGE_BYTES = 500
"""Size of the part of an error response that a message quotes if the response is no `Status` object, such as a proxy's page."""
_WEBHOOK = re.compile(
    r"(?s)(?:failed calling webhook \"(?P<name>[^\"]{1,200})\"|conversion webhook for (?P<kind>[^,]{1,200}), Kind=\w+ failed): "
    r"(?:failed to call webhook: )?(?:Post \"?https?://(?P<host>[^/\"]+)[^ ]* )?(?P<reason>.*)"
)
"""The API server's message about a webhook that it cannot call (v1.34 apiserver pkg/util/webhook/error.go)."""
_KUBELET = re.compile(r"(?s)\"?https?://[^/\"]+/containerLogs/[^\"]*\"?: (?P<reason>.*)")
"""The API server's message about a kubelet that it cannot reach (Go net/http: `Get "URL": dial tcp …`)."""
MESSAGE_LENGTH = 4000
"""Characters of a message of the API server. An invalid job has one of 3000."""


class Cause(Struct, frozen=True):
    """A field that the API server refused, and the reason."""

    field: str | None = None
    message: str | None = None


class Details(Struct, frozen=True):
    """The object that a refusal is about."""

    kind: str | None = None
    causes: list[Cause] | None = None


class Status(Struct, frozen=True):
    """The API's `Status` object of a failure (meta/v1); without its fields if the response is no such object."""

    kind: str = ""
    reason: str | None = None
    message: str | None = None
    details: Details | None = None

    @property
    def causes(self) -> list[Cause]:
        """The fields that the API server refused."""
        return (self.details and self.details.causes) or []


class Conflict(Refused):
    """The object has changed, or another object has its name."""


class WebhookDown(BackendError):
    """A webhook that must check a change does not answer, or not as the API server expects; nothing was changed."""


class Expired(KfjobError):
    """The resource version is too old to watch from (410 Gone). Internal to this backend."""


def make_unreachable(lost: ConnectionLost, host: str) -> Unreachable:
    """Return the error for a user."""
    hint = "check the address in the kubeconfig, VPN and proxy; `kubectl cluster-info` asks the same server"
    if lost.untrusted:
        hint = "the kubeconfig's certificate authority is not the one of this server; get a new kubeconfig"
    return Unreachable(f"the API server `{host}` does not answer", cause=lost.cause, hint=hint)


def make_error(request: Request, status: int, body: bytes) -> KfjobError:
    """Return the error for a response whose status is not 2xx."""
    failure = _parse_status(body)
    message = failure.message or body[:MESSAGE_BYTES].decode(errors="replace").strip() or f"status {status}"
    message = _quote(message)
    match status:
        case 401:
            title = "the API server does not accept the credentials of the kubeconfig"
            hint = f"log in again, or choose another context; `{_can_i(request)}` asks with the same credentials"
            return Forbidden(title, cause=message, hint=hint)
        case 403 | 404 | 409:
            return {403: _make_forbidden, 404: _make_not_found, 409: _make_conflict}[status](request, failure, message)
        case 410:
            return Expired(message)
        case _ if is_transient(status):
            return _make_transient(request, status, message)
        case _:
            title = f"the API server refused to {request.verb} {_describe_object(request)}"
            return Refused(title, cause=_list_causes(failure) or message)


def _make_transient(request: Request, status: int, message: str) -> KfjobError:
    """Return the error of a server that may answer otherwise a moment later."""
    if webhook := _WEBHOOK.search(message):
        return _make_webhook_down(request, webhook)
    if request.subresource == "log" and (kubelet := _KUBELET.search(message)):
        title = f"the log of pod `{request.name}` cannot be read: its node does not answer"
        hint = "`kubectl get nodes` shows the nodes that are not ready"
        return NodeUnreachable(title, cause=kubelet["reason"], hint=hint)
    title = f"the API server failed to {request.verb} {_describe_object(request)}"
    return BackendError(title, cause=f"{status}: {message}")


def _make_webhook_down(request: Request, webhook: re.Match[str]) -> WebhookDown:
    """Return the error of a webhook whose service does not answer, as while its pod restarts."""
    name = webhook["name"] or webhook["kind"]
    title = f"the cluster cannot {request.verb} {_describe_object(request)}: webhook `{name}` does not answer"
    service, _, namespace = (webhook["host"] or "").partition(".svc")[0].partition(".")
    look = f"`kubectl -n {namespace} get pods,endpoints` shows whether `{service}` is ready" if namespace else ""
    hint = "; ".join(filter(None, ("it may be restarting: try again in a minute", look)))
    return WebhookDown(title, cause=": ".join(filter(None, (webhook["host"], webhook["reason"]))), hint=hint)


def is_transient(status: int) -> bool:
    """Return whether the same request may succeed a moment later."""
    return status == 429 or status >= 500  # noqa: PLR2004 - HTTP statuses are best known by their numbers


def _make_forbidden(request: Request, failure: Status, message: str) -> KfjobError:
    """A webhook and a quota use the same status as a missing permission (403): only the messages differ."""
    if failure.kind and 'User "' not in message:
        title = f"the cluster refused to {request.verb} {_describe_object(request)}"
        return Refused(title, cause=_list_causes(failure) or message)
    resource = request.resource + (f"/{request.subresource}" if request.subresource else "")
    place = f"in namespace `{request.namespace}`" if request.namespace else "in all namespaces"
    title = f"not allowed to {request.verb} {resource} {place}"
    return Forbidden(title, cause=message, hint=f"ask for that right; `{_can_i(request)}` shows whether you have it")


def _make_not_found(request: Request, failure: Status, message: str) -> KfjobError:
    kind = failure.details.kind if failure.details else None
    if kind == "namespaces" or message.startswith("namespaces "):
        return NotFound(f"there is no namespace `{request.namespace}`", hint="`kubectl get namespaces` lists them")
    if request.job_kind and not kind:  # no object in the response: the path itself is unknown
        job_kind = KINDS[request.job_kind]
        title = f"{job_kind.controller} is not installed in this cluster"
        hint = f"an administrator installs it with `{job_kind.install_command}`" if job_kind.install_command else None
        return NotInstalled(title, cause=f"it has no `{job_kind.name}`", hint=hint)
    if request.job_kind:
        hint = f"`kfjob list -n {request.namespace}` shows the jobs there"
        return NotFound(f"there is no job `{request.name}` in namespace `{request.namespace}`", hint=hint)
    return NotFound(f"there is no {request.resource.removesuffix('s')} `{request.name}` in namespace `{request.namespace}`")


def _make_conflict(request: Request, failure: Status, message: str) -> KfjobError:
    if request.verb == "create" and failure.reason == "AlreadyExists":
        if request.job_kind:
            hint = f"`kfjob stop {request.name}` removes it, `kfjob relaunch {request.name}` starts it again"
            return AlreadyExists(f"there is a job `{request.name}` in namespace `{request.namespace}` already", hint=hint)
        return AlreadyExists(f"there is a {_describe_object(request)} in namespace `{request.namespace}` already")
    title = f"the API server refused to {request.verb} {_describe_object(request)}: the object has changed"
    return Conflict(title, cause=message)


def _describe_object(request: Request) -> str:
    noun = "job" if request.job_kind else request.resource.removesuffix("s")
    if request.subresource == "log":
        return f"the log of pod `{request.name}`"
    return f"{noun} `{request.name}`" if request.name else f"{noun}s"


def _can_i(request: Request) -> str:
    """Return the `kubectl` command that checks the permission for a request."""
    group = f".{KINDS[request.job_kind].group}" if request.job_kind else ""
    subresource = f" --subresource={request.subresource}" if request.subresource else ""
    place = f"-n {request.namespace}" if request.namespace else "--all-namespaces"
    return f"kubectl auth can-i {request.verb} {request.resource}{group}{subresource} {place}"


def _parse_status(body: bytes) -> Status:
    """Return the API's `Status` object; an empty one if the body holds none."""
    try:
        status = decode_json(body, Status)
    except ParseError:
        return Status()
    return status if status.kind == "Status" else Status()


def _quote(message: str) -> str:
    """Return a message of the server without the user's credentials, which a server may repeat, and cut."""
    return Redactor().text(cut_text(join_lines(message), MESSAGE_LENGTH))


def _list_causes(failure: Status) -> str:
    """Return every cause that the API names, one per line."""
    lines = (_quote(f"{cause.field or ''}: {cause.message or ''}".removeprefix(": ")) for cause in failure.causes)
    return "\n".join(line for line in dict.fromkeys(lines) if not line.startswith("<nil>"))  # `<nil>` marks omitted causes
