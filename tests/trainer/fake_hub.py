"""A fake of the Hugging Face hub on the loopback: the answers that huggingface_hub and `datasets` ask for."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_API = re.compile(r"/api/(?P<kind>datasets|models)/(?P<name>[^/]+/[^/]+)(?P<rest>/.*)?")
_FILE = re.compile(r"/(?P<datasets>datasets/)?(?P<name>[^/]+/[^/]+)/resolve/[^/]+/(?P<path>.*)")


class FakeHub(ThreadingHTTPServer):
    """Repositories by kind and name (`datasets/someone/texts`), each a map of paths to bytes."""

    daemon_threads = True

    def __init__(self, repositories: Mapping[str, Mapping[str, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.repositories = repositories
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class Answers(BaseHTTPRequestHandler):
    server: FakeHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b"")

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _answer(self, asked: bytes) -> None:
        path = unquote(urlsplit(self.path).path)
        if found := _API.fullmatch(path):
            files = self.server.repositories.get(f"{found['kind']}/{found['name']}")
            answer = None if files is None else api(found["name"], found["rest"] or "", files, asked)
            missing = {"X-Error-Code": "RepoNotFound"} if files is None else {}
            self._send(404 if answer is None else 200, json.dumps(answer or {}).encode(), "application/json", missing)
        elif found := _FILE.fullmatch(path):
            files = self.server.repositories.get(f"{'datasets' if found['datasets'] else 'models'}/{found['name']}")
            self._file((files or {}).get(found["path"]), "RepoNotFound" if files is None else "EntryNotFound")
        else:
            self._send(404, b"{}", "application/json")

    def _file(self, content: bytes | None, missing: str) -> None:
        if content is None:
            self._send(404, b"", "text/plain", {"X-Error-Code": missing, "X-Repo-Commit": COMMIT})
            return
        headers = {"ETag": f'"{oid(content)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            begin, end = int(wanted[1]), min(int(wanted[2] or len(content)) + 1, len(content))
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(content)}"
            self._send(206, content[begin:end], "application/octet-stream", headers)
        else:
            self._send(200, content, "application/octet-stream", headers)

    def _send(self, status: int, body: bytes, kind: str, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


def api(name: str, rest: str, files: Mapping[str, bytes], asked: bytes) -> Any:
    """What the API says of a repository; None for what it does not know."""
    if rest == "" or rest.startswith("/revision/"):
        siblings = [{"rfilename": path} for path in files]
        return {"id": name, "sha": COMMIT, "private": False, "siblings": siblings, "tags": [], "downloads": 0, "likes": 0}
    if rest.startswith("/tree/"):
        return listing(rest.removeprefix("/tree/").partition("/")[2].strip("/"), files)
    if rest.startswith("/paths-info/"):
        wanted = json.loads(asked)["paths"] if asked.startswith(b"{") else parse_qs(asked.decode())["paths"]
        above = [path.rpartition("/") for path in wanted]
        return [found for folder, _, name in above for found in listing(folder, files) or [] if found["path"] in wanted]
    return None


def listing(folder: str, files: Mapping[str, bytes]) -> list[dict[str, Any]] | None:
    """What is in a folder itself; None where there is no such folder."""
    start = f"{folder}/" if folder else ""
    inside = [path.removeprefix(start) for path in files if path.startswith(start)]
    folders = dict.fromkeys(path.partition("/")[0] for path in inside if "/" in path)
    found = [{"type": "directory", "path": start + name, "size": 0, "oid": "0" * 40} for name in folders]
    plain = [start + path for path in inside if "/" not in path]
    return [
        *found,
        *({"type": "file", "path": path, "size": len(files[path]), "oid": oid(files[path])} for path in plain),
    ] or None


def oid(content: bytes) -> str:
    """What stands for git's hash."""
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()
