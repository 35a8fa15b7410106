"""A fake of the Hugging Face hub on the loopback, for huggingface_hub and `datasets`.

It accepts uploads too: every file inline in the commit. The store for large files is not faked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_of_the_fake"  # noqa: S105 -- of no other hub
COMMIT = "0123456789abcdef0123456789abcdef01234567"
_API = re.compile(r"/api/(?P<kind>datasets|models)/(?P<name>[^/]+/[^/]+)(?P<rest>/.*)?")
_FILE = re.compile(r"/(?P<datasets>datasets/)?(?P<name>[^/]+/[^/]+)/resolve/[^/]+/(?P<path>.*)")


class FakeHub(ThreadingHTTPServer):
    """Repositories by kind and name (`datasets/someone/texts`), each a map of paths to bytes; `TOKEN` has write access."""

    daemon_threads = True

    def __init__(self, repositories: Mapping[str, Mapping[str, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), HubRequestHandler)
        self.repositories = {name: dict(files) for name, files in repositories.items()}
        self.private: set[str] = set()
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class HubRequestHandler(BaseHTTPRequestHandler):
    server: FakeHub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise each body waits 40 ms for the client's acknowledgement of the headers

    def do_GET(self) -> None:
        self._respond(b"")

    def do_HEAD(self) -> None:
        self._respond(b"")

    def do_POST(self) -> None:
        self._respond(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _respond(self, body: bytes) -> None:
        path = unquote(urlsplit(self.path).path)
        if self.command == "POST" and (path == "/api/repos/create" or "/preupload/" in path or "/commit/" in path):
            self._accept_upload(path, body)
        elif match := _API.fullmatch(path):
            files = self.server.repositories.get(f"{match['kind']}/{match['name']}")
            answer = None if files is None else api_response(match["name"], match["rest"] or "", files, body)
            missing = {"X-Error-Code": "RepoNotFound"} if files is None else {}
            self._send(404 if answer is None else 200, json.dumps(answer or {}).encode(), "application/json", missing)
        elif match := _FILE.fullmatch(path):
            files = self.server.repositories.get(f"{'datasets' if match['datasets'] else 'models'}/{match['name']}")
            self._file((files or {}).get(match["path"]), "RepoNotFound" if files is None else "EntryNotFound")
        else:
            self._send(404, b"{}", "application/json")

    def _accept_upload(self, path: str, body: bytes) -> None:
        """Create a repository, choose the upload mode, or store the files of a commit."""
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, b'{"error": "Invalid username or password."}', "application/json")
            return
        if path == "/api/repos/create":
            settings = json.loads(body)
            name = f"{settings['organization']}/{settings['name']}"
            self.server.repositories.setdefault(f"models/{name}", {})
            self.server.private |= (
                {name} if "private" in (settings.get("visibility"), settings.get("private") and "private") else set()
            )
            answer: dict[str, Any] = {"url": f"{self.server.endpoint}/{name}", "id": name}
        elif "/preupload/" in path:
            files = json.loads(body)["files"]
            answer = {"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]}
        else:
            match = _API.fullmatch(path)
            assert match
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.server.repositories[f"models/{match['name']}"][line["value"]["path"]] = content
            answer = {"commitUrl": f"{self.server.endpoint}/{match['name']}/commit/{COMMIT}", "commitOid": COMMIT}
        self._send(200, json.dumps(answer | {"success": True}).encode(), "application/json")

    def _file(self, content: bytes | None, missing: str) -> None:
        if content is None:
            self._send(404, b"", "text/plain", {"X-Error-Code": missing, "X-Repo-Commit": COMMIT})
            return
        headers = {"ETag": f'"{oid(content)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if byte_range := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            begin, end = int(byte_range[1]), min(int(byte_range[2] or len(content)) + 1, len(content))
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
        """Print nothing."""


def api_response(name: str, rest: str, files: Mapping[str, bytes], body: bytes) -> Any:
    """Return the response of the API about a repository; None for an unknown request."""
    if rest == "" or rest.startswith("/revision/"):
        siblings = [{"rfilename": path} for path in files]
        return {"id": name, "sha": COMMIT, "private": False, "siblings": siblings, "tags": [], "downloads": 0, "likes": 0}
    if rest.startswith("/tree/"):
        return list_folder(rest.removeprefix("/tree/").partition("/")[2].strip("/"), files)
    if rest.startswith("/paths-info/"):
        paths = json.loads(body)["paths"] if body.startswith(b"{") else parse_qs(body.decode())["paths"]
        parents = [path.rpartition("/") for path in paths]
        return [entry for folder, _, _ in parents for entry in list_folder(folder, files) or [] if entry["path"] in paths]
    return None


def list_folder(folder: str, files: Mapping[str, bytes]) -> list[dict[str, Any]] | None:
    """Return the entries of a folder; None if it does not exist."""
    start = f"{folder}/" if folder else ""
    inside = [path.removeprefix(start) for path in files if path.startswith(start)]
    folders = dict.fromkeys(path.partition("/")[0] for path in inside if "/" in path)
    directories = [{"type": "directory", "path": start + name, "size": 0, "oid": "0" * 40} for name in folders]
    names = [start + path for path in inside if "/" not in path]
    return [
        *directories,
        *({"type": "file", "path": path, "size": len(files[path]), "oid": oid(files[path])} for path in names),
    ] or None


def oid(content: bytes) -> str:
    """Return a replacement for git's hash."""
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()
