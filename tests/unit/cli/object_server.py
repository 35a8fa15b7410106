"""A fake API server that stores objects and answers dry runs. It runs nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from kfjob.backends.kubernetes.fake import FakeStream
from kfjob.backends.kubernetes.requests import Request


@dataclass
class ObjectServer:
    objects: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)  # by namespace, resource, name
    requests: list[tuple[str, str, str, bool]] = field(default_factory=list)  # method, resource, name, dry run
    refusal: str = ""  # message that refuses the next change

    def answer(self, request: Request) -> FakeStream:
        dry = ("dryRun", "All") in request.query
        self.requests.append((request.method, request.resource, request.name, dry))
        key = (request.namespace, request.resource, request.name)
        stored = self.objects.get(key)
        if self.refusal and request.method != "GET":
            return _status(422, "Invalid", self.refusal)
        if request.method == "GET":
            return _reply(stored) if stored else _status(404, "NotFound", "not found", {"kind": request.resource})
        body = {**dict(request.body or {}), "metadata": {**(request.body or {})["metadata"], "uid": f"uid-{request.name}"}}
        body["metadata"]["resourceVersion"] = "7"
        if request.method == "POST" and stored:
            return _status(409, "AlreadyExists", "already exists")
        if not dry:
            self.objects[key] = body
        return _reply(body)


def _reply(body: dict[str, Any]) -> FakeStream:
    return FakeStream(pieces=[json.dumps(body).encode()])


def _status(code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> FakeStream:
    status = {"kind": "Status", "reason": reason, "message": message, "details": details or {}}
    return FakeStream(status=code, pieces=[json.dumps(status).encode()])
