"""The AWS identity. boto3 is imported only when the check runs, and every request has a short timeout."""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.api.doctor.findings import Checks, Finding, ok, warn
from kfjob.base.aws import open_session

TIMEOUT_SECONDS = 3
"""Timeout of a connection to AWS, and of each response."""
LOG_IN = "log in with `aws sso login` or `aws configure`; `aws sts get-caller-identity` shows the identity"


def check_identity(_: None) -> Iterator[Finding]:
    """Check account, ARN and region, which `push-image` uses. Only images in ECR need them."""
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    no_credentials = warn("aws", "no credentials: kfjob cannot push images to ECR", LOG_IN)
    config = Config(connect_timeout=TIMEOUT_SECONDS, read_timeout=TIMEOUT_SECONDS, retries={"total_max_attempts": 1})
    try:
        session = open_session()
        region = session.region_name
        if session.get_credentials() is None:
            yield no_credentials
            return
        caller = session.client("sts", config=config, region_name=region or "us-east-1").get_caller_identity()
    except NoCredentialsError:
        yield no_credentials
    except (BotoCoreError, ClientError) as err:
        yield warn("aws", f"the request to STS failed: {err}", LOG_IN)
    else:
        identity = f"{caller['Arn']}, account {caller['Account']}"
        if region:
            yield ok("aws", f"{identity}, region {region}")
        else:
            yield warn("aws", f"{identity}; no region is configured", "aws configure set region REGION")


CHECKS: Checks[None] = {"aws": check_identity}
