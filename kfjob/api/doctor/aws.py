"""Who we are to AWS. boto3 is imported only here, and only when this is asked; nothing waits longer than some seconds."""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.api.doctor.findings import Checks, Finding, ok, warn

SECONDS = 3
LOG_IN = "aws sso login, or aws configure; `aws sts get-caller-identity` asks the same"


def identity(_: object) -> Iterator[Finding]:
    """Account, ARN and region: `push-image` takes them from here. Who uses no ECR needs none of it."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    config = Config(connect_timeout=SECONDS, read_timeout=SECONDS, retries={"total_max_attempts": 1})
    try:
        session = boto3.Session()
        region = session.region_name
        if session.get_credentials() is None:
            yield warn("aws", "no credentials: images cannot be pushed to ECR", LOG_IN)
            return
        found = session.client("sts", config=config, region_name=region or "us-east-1").get_caller_identity()
    except NoCredentialsError:
        yield warn("aws", "no credentials: images cannot be pushed to ECR", LOG_IN)
    except (BotoCoreError, ClientError) as err:
        yield warn("aws", f"STS does not accept us: {err}", LOG_IN)
    else:
        said = f"{found['Arn']}, account {found['Account']}"
        unknown = warn("aws", f"{said}, and no region is configured", "aws configure set region REGION")
        yield ok("aws", f"{said}, region {region}") if region else unknown


CHECKS: Checks[object] = {"aws": identity}
