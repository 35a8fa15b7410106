"""A stand-in for AWS (moto's server in a process): STS, IAM and ECR's API, and the environment of a user."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import urllib3

from kfjob.local.machine import free_port

ACCOUNT = "123456789012"
REGION = "eu-west-1"
HOST = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"


@dataclass(frozen=True)
class MotoAws:
    """moto's server. It supports neither repository policies, nor expiry of credentials, nor the public ECR."""

    url: str

    def environment(self, *, key: str = "testing", region: str = REGION, **more: str) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": more.get("proof", "testing"),
            "AWS_REGION": region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/nonexistent/config",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/credentials",
        }

    def client(self, service: str, region: str = REGION) -> Any:
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
        return boto3.client(service, region_name=region, endpoint_url=self.url, **keys)

    def reset(self) -> None:
        self.post("/moto-api/reset")

    def post(self, path: str, body: bytes = b"") -> None:
        headers = {"Content-Type": "text/plain"}
        answer = urllib3.request("POST", self.url + path, body=body, headers=headers, timeout=30)
        assert answer.status == 200

    def user(self, *allowed: str) -> dict[str, str]:
        """Return the environment of a new user with only these rights; from now on moto checks rights."""
        iam = self.client("iam")
        name = f"user-{os.urandom(4).hex()}"
        iam.create_user(UserName=name)
        statement = {"Effect": "Allow", "Action": list(allowed) or ["s3:ListBuckets"], "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_user_policy(UserName=name, PolicyName="rights", PolicyDocument=document)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        self.post("/moto-api/reset-auth", b"0")
        return self.environment(key=key["AccessKeyId"], proof=key["SecretAccessKey"])


@contextlib.contextmanager
def moto_aws() -> Iterator[MotoAws]:
    """Run the server until the block ends."""
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    environment = {"PATH": os.environ["PATH"], "MOTO_ACCOUNT_ID": ACCOUNT}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 90
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert server.poll() is None, "moto's server ended"
            assert time.monotonic() < deadline, "moto's server does not answer"
            time.sleep(0.05)
        yield MotoAws(f"http://127.0.0.1:{port}")
    finally:
        server.terminate()
        server.wait(timeout=30)
