"""A fake API server for objects: it creates, gives, and goes through dry runs; nothing runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from kfjob.backends.kubernetes.fake import FakeStream
from kfjob.backends.kubernetes.requests import Request


@dataclass
class Objects:
    kept: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)  # by namespace, resource, name
    asked: list[tuple[str, str, str, bool]] = field(default_factory=list)  # method, resource, name, dry run
    refusal: str = ""  # said to the next change

    def answer(self, request: Request) -> FakeStream:
        dry = ("dryRun", "All") in request.query
        self.asked.append((request.method, request.resource, request.name, dry))
        key = (request.namespace, request.resource, request.name)
        there = self.kept.get(key)
        if self.refusal and request.method != "GET":
            return _status(422, "Invalid", self.refusal)
        if request.method == "GET":
            return _found(there) if there else _status(404, "NotFound", "not found", {"kind": request.resource})
        made = {**dict(request.body or {}), "metadata": {**(request.body or {})["metadata"], "uid": f"uid-{request.name}"}}
        made["metadata"]["resourceVersion"] = "7"
        if request.method == "POST" and there:
            return _status(409, "AlreadyExists", "already exists")
        if not dry:
            self.kept[key] = made
        return _found(made)


def _found(thing: dict[str, Any]) -> FakeStream:
    return FakeStream(pieces=[json.dumps(thing).encode()])


def _status(code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> FakeStream:
    said = {"kind": "Status", "reason": reason, "message": message, "details": details or {}}
    return FakeStream(status=code, pieces=[json.dumps(said).encode()])
