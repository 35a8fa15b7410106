"""A stub for image registries that refuse requests, with the responses of real ones. It serves no image.

It runs in a pod on the node's network, because containerd uses plain HTTP only for loopback addresses.
It responds like a registry that requires a login, and like one that has the image only for arm64.
"""

from __future__ import annotations

import hashlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_INDEX = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            {
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": "sha256:" + "0" * 64,
                "size": 2,
                "platform": {"architecture": "arm64", "os": "linux"},
            }
        ],
    }
).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if "/private/" in self.path:
            self._respond(401, b"{}", {"WWW-Authenticate": 'Basic realm="private"'})
        elif "/arm/" in self.path:
            digest = "sha256:" + hashlib.sha256(_INDEX).hexdigest()
            self._respond(200, _INDEX, {"Docker-Content-Digest": digest}, "application/vnd.oci.image.index.v1+json")
        else:
            self._respond(200 if self.path == "/v2/" else 404, b"{}", {})

    do_HEAD = do_GET  # noqa: N815 - the base class requires this name

    def _respond(self, status: int, body: bytes, headers: dict[str, str], kind: str = "application/json") -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()
