"""The one place where foreign errors (statuses of the API server, exceptions of urllib3) become ours.

no answer         Broken  -> Unreachable
400 422 other 4xx            Refused, with the API's own causes
401                          Forbidden
403                          Forbidden if a right is missing, Refused if something else says no (webhook, quota, pod security)
404                          Refused if the resource itself is not there (no operator), else NotFound
409                          AlreadyExists on create, else Conflict, which is a Refused
410                          Expired: what was asked for is too old, list again
429 and 5xx                  BackendError, once repeating did not help
"""

from __future__ import annotations

import json
from typing import Any

from kfjob.backends.kubernetes.requests import Request
from kfjob.errors import AlreadyExists, BackendError, Forbidden, KfjobError, NotFound, Refused, Unreachable
from kfjob.spec import api_objects

INSTALL_HINT = "an administrator installs it with `kubectl apply --server-side -k manifests/operator`"


class Broken(Exception):
    """There was no answer, or it ended too early. Internal to this backend; `unreachable` makes the user's error of it."""

    def __init__(self, why: str, *, sent: bool, waited: bool = False, final: bool = False) -> None:
        """`sent`: the request may have been carried out; `waited`: a timeout; `final`: repeating cannot help."""
        super().__init__(why)
        self.why = why
        self.sent = sent
        self.waited = waited
        self.final = final


class Conflict(Refused):
    """The object is not (any more) the one that was meant."""


class Expired(KfjobError):
    """The resource version is too old to watch from (410 Gone). Internal to this backend."""


def broken(err: Exception) -> Broken:
    """What an exception of urllib3, ssl or the socket says about the connection. A fault of ours is raised again."""
    from urllib3 import exceptions as u

    text = _plain(err)
    match err:
        case u.ProxyError():
            said = Broken(f"the proxy does not answer: {_plain(err.original_error)}", sent=False)
        case u.SSLError():
            said = Broken(f"TLS: {text}", sent=False, final="CERTIFICATE" in text.upper())
        case u.NameResolutionError():
            said = Broken("the name cannot be resolved", sent=False)
        case u.NewConnectionError():
            said = Broken(text.partition("Failed to establish a new connection: ")[2] or text, sent=False)
        case u.ConnectTimeoutError():
            said = Broken("no connection in time", sent=False, waited=True)
        case u.ReadTimeoutError():
            said = Broken("no answer in time", sent=True, waited=True)
        case u.LocationValueError():  # what stands as server in the kubeconfig
            said = Broken(f"not an address: {text}", sent=False, final=True)
        case u.HTTPError() | OSError():
            said = Broken(text or type(err).__name__, sent=True)
        case _:
            raise err
    return said


def unreachable(lost: Broken, host: str) -> Unreachable:
    """For people: the API server does not answer."""
    hint = "check the address in the kubeconfig, VPN and proxy; `kubectl cluster-info` asks the same server"
    if lost.final and lost.why.startswith("TLS"):
        hint = "the kubeconfig's certificate authority is not the one of this server; get a new kubeconfig"
    return Unreachable(f"the API server `{host}` does not answer", cause=lost.why, hint=hint)


def refusal(request: Request, status: int, body: bytes) -> KfjobError:
    """What a status that is not 2xx means for this request."""
    said = _status(body)
    message = str(said.get("message") or body[:500].decode(errors="replace").strip() or f"status {status}")
    what = _what(request)
    match status:
        case 401:
            title = "the API server does not accept the credentials of the kubeconfig"
            return Forbidden(title, cause=message, hint=_log_in(request))
        case 403 | 404 | 409:
            return {403: _forbidden, 404: _not_found, 409: _conflict}[status](request, said, message)
        case 410:
            return Expired(message)
        case _ if is_passing(status):
            return BackendError(f"the API server failed to {request.verb} {what}", cause=f"{status}: {message}")
        case _:
            return Refused(f"the API server refused to {request.verb} {what}", cause=_causes(said) or message)


def is_passing(status: int) -> bool:
    """Whether the same request may succeed a moment later."""
    return status == 429 or status >= 500  # noqa: PLR2004 - HTTP statuses are best known by their numbers


def _forbidden(request: Request, said: dict[str, Any], message: str) -> KfjobError:
    """A webhook's or a quota's no has the same status as a missing right (403): only the words differ."""
    if said and 'User "' not in message:
        return Refused(f"the cluster refused to {request.verb} {_what(request)}", cause=_causes(said) or message)
    resource = request.resource + (f"/{request.subresource}" if request.subresource else "")
    title = f"not allowed to {request.verb} {resource} in namespace `{request.namespace}`"
    return Forbidden(title, cause=message, hint=f"ask for that right; `{_can_i(request)}` shows whether you have it")


def _not_found(request: Request, said: dict[str, Any], message: str) -> KfjobError:
    kind = said.get("details", {}).get("kind")
    if kind == "namespaces" or message.startswith("namespaces "):
        return NotFound(f"there is no namespace `{request.namespace}`", hint="`kubectl get namespaces` lists them")
    if (
        request.resource == api_objects.PYTORCHJOBS and not kind
    ):  # the path itself is unknown: an answer without an object in it
        return Refused(
            "the training operator is not installed in this cluster",
            cause=f"it has no `{api_objects.PYTORCHJOB}`",
            hint=INSTALL_HINT,
        )
    if request.resource == api_objects.PYTORCHJOBS:
        hint = f"`kfjob list -n {request.namespace}` shows the jobs there"
        return NotFound(f"there is no job `{request.name}` in namespace `{request.namespace}`", hint=hint)
    return NotFound(f"there is no {request.resource.removesuffix('s')} `{request.name}` in namespace `{request.namespace}`")


def _conflict(request: Request, said: dict[str, Any], message: str) -> KfjobError:
    if request.verb == "create" and said.get("reason") == "AlreadyExists":
        if request.resource == api_objects.PYTORCHJOBS:
            hint = f"`kfjob stop {request.name}` removes it, `kfjob relaunch {request.name}` starts it anew"
            return AlreadyExists(f"there is a job `{request.name}` in namespace `{request.namespace}` already", hint=hint)
        return AlreadyExists(f"there is a {_what(request)} in namespace `{request.namespace}` already")
    return Conflict(f"the API server refused to {request.verb} {_what(request)}: it has changed meanwhile", cause=message)


def _what(request: Request) -> str:
    noun = {api_objects.PYTORCHJOBS: "job"}.get(request.resource, request.resource.removesuffix("s"))
    if request.subresource == "log":
        return f"the log of pod `{request.name}`"
    return f"{noun} `{request.name}`" if request.name else f"{noun}s"


def _can_i(request: Request) -> str:
    group = f".{api_objects.PYTORCHJOB_GROUP}" if request.resource == api_objects.PYTORCHJOBS else ""
    part = f" --subresource={request.subresource}" if request.subresource else ""
    return f"kubectl auth can-i {request.verb} {request.resource}{group}{part} -n {request.namespace}"


def _log_in(request: Request) -> str:
    return f"log in again, or choose another context; `{_can_i(request)}` asks with the same credentials"


def _status(body: bytes) -> dict[str, Any]:
    """The API's `Status` object, {} if this is not one."""
    try:
        said = json.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) and said.get("kind") == "Status" else {}


def _causes(said: dict[str, Any]) -> str:
    """Every cause that the API names, one a line."""
    causes = (said.get("details") or {}).get("causes") or []
    lines = (f"{cause.get('field', '')}: {cause.get('message', '')}".removeprefix(": ") for cause in causes)
    return "\n".join(line for line in dict.fromkeys(lines) if not line.startswith("<nil>"))  # says that there are others


def _plain(err: BaseException | None) -> str:
    """The message without the `<…Connection object at 0x…>: ` before it."""
    text = str(err)
    return text.partition(">: ")[2] or text.partition("): ")[2] or text
