"""Send requests to a registry, its token server and the hosts to which it redirects."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from kfjob.base.connections import load_certificate, make_pool, make_tls_context, trust_any_server
from kfjob.base.errors import UsageError
from kfjob.base.http import ConnectionLost, HttpClient, Limits, Response, Stream, read_response
from kfjob.base.parsing import ParseError, read_document
from kfjob.base.units import MIB
from kfjob.image.registry.endpoints import Endpoint
from kfjob.image.registry.errors import Operation, make_connection_error

DEFAULT_LIMITS = Limits(
    attempts=6, pause=0.5, max_pause=20.0, connect_seconds=10.0, read_seconds=120.0, start_seconds=300.0, body_seconds=300.0
)
BRIEF_LIMITS = Limits(attempts=2, connect_seconds=4.0, read_seconds=15.0, start_seconds=30.0, body_seconds=30.0)
"""For requests that delay another command, such as a submit."""
MAX_CERTIFICATE_BYTES = MIB
"""Size of a file with authorities, a certificate or a key; all public authorities have 220 KiB."""


class Transport:
    """Connections to an endpoint. A lost connection is an error for users."""

    def __init__(self, endpoint: Endpoint, limits: Limits) -> None:
        self.endpoint, self.limits = endpoint, limits
        try:
            self._http = HttpClient(make_pool(endpoint.url, _make_tls_context(endpoint)))
        except (OSError, ssl.SSLError, ParseError, ValueError) as err:
            raise UsageError(f"a certificate for `{endpoint.host}` cannot be read", cause=str(err)) from err

    def open(
        self,
        operation: Operation,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        limits: Limits | None = None,
    ) -> Stream:
        """Send a request, and return the response of any status. Reads follow redirects.

        Raises:
            Unreachable: there was no response in time.
        """
        try:
            return self._http.open(
                method,
                url,
                headers=headers,
                body=body,
                limits=limits or self.limits,
                redirect=method in ("GET", "HEAD"),
                waits_for="" if body else f"registry `{operation.host}`",
            )
        except ConnectionLost as lost:
            raise make_connection_error(operation, lost) from lost

    def read(self, operation: Operation, stream: Stream, *, limits: Limits | None = None) -> Response:
        """Return the complete response.

        Raises:
            Unreachable: it is not complete in time, or too large.
        """
        try:
            return read_response(stream, limits or self.limits, waits_for=f"registry `{operation.host}`")
        except ConnectionLost as lost:
            raise make_connection_error(operation, lost) from lost

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _make_tls_context(endpoint: Endpoint) -> ssl.SSLContext:
    context = make_tls_context()
    for file in (*endpoint.authorities, *(endpoint.certificate or ())):
        read_document(file, max_bytes=MAX_CERTIFICATE_BYTES)  # OpenSSL would wait for a FIFO, and read a device to its end
    for authority in endpoint.authorities:
        context.load_verify_locations(cafile=str(authority))
    if endpoint.certificate:
        load_certificate(context, *endpoint.certificate)
    if not endpoint.verify:
        trust_any_server(context)
    return context
