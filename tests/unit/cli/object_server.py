"""A fake API server that stores objects, checks the uid of a deletion, and answers dry runs. It runs nothing."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any

from kfjob.cluster.requests import Request
from tests.fakes.transport import FakeStream

Key = tuple[str, str, str]  # namespace, resource, name


@dataclass
class ObjectServer:
    objects: dict[Key, dict[str, Any]] = field(default_factory=dict)
    requests: list[tuple[str, str, str, bool]] = field(default_factory=list)  # method, resource, name, dry run
    refusal: str = ""  # message that refuses the next change
    lacks_namespace: bool = False
    created: list[str] = field(default_factory=list)  # uids, in the order of the creates
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request) -> FakeStream:
        with self._lock:
            if request.resource == "namespaces" and not self.lacks_namespace:
                return _reply({"metadata": {"name": request.name}})
            return self._answer(request)

    def _answer(self, request: Request) -> FakeStream:
        dry = ("dryRun", "All") in request.query
        self.requests.append((request.method, request.resource, request.name, dry))
        key = (request.namespace, request.resource, request.name)
        stored = self.objects.get(key)
        if request.method != "GET" and (refusal := self.refusal or _find_problem(request)):
            return _status(422, "Invalid", refusal)
        if request.verb == "list":
            return _reply({"metadata": {"resourceVersion": "7"}, "items": self._select(request)})
        if request.method == "GET":
            return _reply(stored) if stored else _status(404, "NotFound", "not found", {"kind": request.resource})
        if request.method == "DELETE":
            return self._delete(key, request.body["preconditions"]["uid"])
        if request.method == "POST" and stored:
            return _status(409, "AlreadyExists", "already exists")
        uid = stored["metadata"]["uid"] if stored else self._make_uid(request.name)
        body = {**dict(request.body or {}), "metadata": {**(request.body or {})["metadata"], "uid": uid}}
        body["metadata"]["resourceVersion"] = "7"
        body = _drop_nulls(body)
        if not dry:
            self.objects[key] = body
            self.created += [] if stored else [uid]
        return _reply(body)

    def _make_uid(self, name: str) -> str:
        return f"uid-{name}" if f"uid-{name}" not in self.created else f"uid-{name}-{len(self.created)}"

    def _select(self, request: Request) -> list[dict[str, Any]]:
        selector = dict(request.query).get("fieldSelector", "")
        return [
            item
            for (namespace, resource, name), item in self.objects.items()
            if (namespace, resource) == (request.namespace, request.resource) and selector in {"", f"metadata.name={name}"}
        ]

    def _delete(self, key: Key, uid: str) -> FakeStream:
        stored = self.objects.get(key)
        if stored is None:
            return _status(404, "NotFound", "not found", {"kind": key[1]})
        if stored["metadata"]["uid"] != uid:
            return _status(409, "Conflict", "the UID in the precondition does not match the UID in record")
        del self.objects[key]
        return _reply(stored)


def _find_problem(request: Request) -> str:
    """Return why the operator's webhook refuses the object; "" if it does not."""
    if request.method == "DELETE":
        return ""
    replicas = (request.body or {}).get("spec", {}).get("pytorchReplicaSpecs", {}).values()
    return "replicas must not be negative" if any((replica.get("replicas") or 0) < 0 for replica in replicas) else ""


def _drop_nulls(value: Any) -> Any:
    """Return the value without fields that are null, as the API server stores an object with a structural schema."""
    if isinstance(value, dict):
        return {name: _drop_nulls(item) for name, item in value.items() if item is not None}
    return [_drop_nulls(item) for item in value] if isinstance(value, list) else value


def _reply(body: dict[str, Any]) -> FakeStream:
    return FakeStream(pieces=[json.dumps(body).encode()])


def _status(code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> FakeStream:
    status = {"kind": "Status", "reason": reason, "message": message, "details": details or {}}
    return FakeStream(status=code, pieces=[json.dumps(status).encode()])
