"""S3, mocked by moto's server. Its objects outlive `stop`, because they are in the memory of this process."""

from __future__ import annotations

import logging
import socket
from typing import Any


class MockS3:
    """A server on a port of its own, and what a client needs to reach it."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.start()

    def start(self) -> None:
        from moto.moto_server.threaded_moto_server import ThreadedMotoServer

        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self._port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def make_client(self) -> Any:
        import boto3

        names = {"endpoint_url": "AWS_ENDPOINT_URL", "region_name": "AWS_DEFAULT_REGION"}
        names |= {name.lower(): name for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        return boto3.client("s3", **{option: self.environment[name] for option, name in names.items()})
