"""ECR's API with moto; botocore's Stubber and small servers stand in for what moto lacks."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kfjob.base.errors import BackendError, Forbidden, Refused, Unreachable, UsageError
from kfjob.image import ecr
from kfjob.image.references import parse_reference
from kfjob.image.registry.secrets import Login
from kfjob.local.machine import free_port
from tests.hostile_server import Answer, HostileServer, Received, json_answer, serve
from tests.image.aws import ACCOUNT, HOST, REGION, MotoAws
from tests.image.conftest import clear_aws


def become(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def test_own_registry_host_has_account_and_region(aws: MotoAws):
    own = ecr.open_own_registry()
    assert (own.id, own.host) == (ACCOUNT, HOST)
    assert ecr.open_own_registry(region="cn-north-1").host == f"{ACCOUNT}.dkr.ecr.cn-north-1.amazonaws.com.cn"
    assert ecr.open_own_registry(region="us-gov-west-1").host == f"{ACCOUNT}.dkr.ecr.us-gov-west-1.amazonaws.com"


def test_fips_is_set_by_environment_or_host(aws: MotoAws, monkeypatch: pytest.MonkeyPatch):
    assert ecr.open_registry(parse_reference(f"{ACCOUNT}.dkr.ecr-fips.us-east-1.amazonaws.com/a")).account.fips
    assert not ecr.open_registry(parse_reference(f"{HOST}/a")).account.fips
    monkeypatch.setenv("AWS_USE_FIPS_ENDPOINT", "true")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    where = ecr.open_account(region="us-gov-west-1")
    assert where.make_client("ecr").meta.endpoint_url == "https://ecr-fips.us-gov-west-1.amazonaws.com"
    assert (
        ecr.open_account(region="us-gov-west-1", fips=False)
        .make_client("ecr")
        .meta.endpoint_url.startswith("https://api.ecr.us-gov")
    )
    assert ecr.open_account(region="cn-north-1", fips=False).make_client("ecr").meta.endpoint_url.endswith(".amazonaws.com.cn")


def test_repository_is_created_once_by_its_exact_name(aws: MotoAws):
    aws.client("ecr").create_repository(repositoryName="fsdp-old")
    registry = ecr.open_own_registry()
    assert registry.ensure_repository("fsdp") is True
    assert registry.ensure_repository("fsdp") is False
    names = {one["repositoryName"] for one in aws.client("ecr").describe_repositories()["repositories"]}
    assert names == {"fsdp-old", "fsdp"}


RIGHTS = {
    "ecr:DescribeRepositories": lambda: ecr.open_own_registry().ensure_repository("fsdp"),
    "ecr:CreateRepository": lambda: ecr.open_own_registry().ensure_repository("fsdp"),
    "ecr:GetAuthorizationToken": lambda: ecr.open_own_registry().get_login(),
}


@pytest.mark.parametrize("action", RIGHTS)
def test_missing_right_is_named_with_the_user(aws: MotoAws, monkeypatch: pytest.MonkeyPatch, action: str):
    others = {*RIGHTS, "sts:GetCallerIdentity"} - {action}
    become(monkeypatch, aws.user(*others))
    with pytest.raises(Forbidden) as caught:
        RIGHTS[action]()
    assert f"not allowed to `{action}`" in caught.value.title
    assert f"ask for `{action}` for `arn:aws:iam::{ACCOUNT}:user/" in str(caught.value.hint)
    aws.post("/moto-api/reset-auth", b"inf")
    assert aws.client("ecr").describe_repositories()["repositories"] == []  # nothing half done


def test_unknown_credentials_are_forbidden(aws: MotoAws, monkeypatch: pytest.MonkeyPatch):
    aws.user()
    become(monkeypatch, aws.environment(key="AKIAIOSFODNN7EXAMPLE", proof="wrong"))
    with pytest.raises(Forbidden, match="AWS does not accept these credentials"):
        ecr.open_own_registry()


def test_missing_credentials_or_region_are_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    clear_aws(monkeypatch)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with pytest.raises(Forbidden, match="no AWS credentials were found") as caught:
        ecr.open_account(region=REGION)
    assert "aws configure" in str(caught.value.hint)
    with pytest.raises(UsageError, match="no AWS region"):
        ecr.open_account()
    with pytest.raises(UsageError, match="AWS profile `work` does not exist"):
        ecr.open_account(profile="work", region=REGION)


def test_profile_sets_account_and_region(profile: str, monkeypatch: pytest.MonkeyPatch):
    assert ecr.open_own_registry(profile=profile).host == f"{ACCOUNT}.dkr.ecr.ap-south-1.amazonaws.com"
    monkeypatch.setenv("AWS_PROFILE", profile)
    assert ecr.open_own_registry().host == f"{ACCOUNT}.dkr.ecr.ap-south-1.amazonaws.com"
    monkeypatch.setenv("AWS_REGION", "eu-north-1")  # over the profile's, as in the AWS CLI
    assert ecr.open_own_registry().host == f"{ACCOUNT}.dkr.ecr.eu-north-1.amazonaws.com"


def test_expired_sso_login_is_forbidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    clear_aws(monkeypatch)
    lines = ["[profile work]", "region = eu-west-1", "sso_start_url = https://x.awsapps.com/start", "sso_region = eu-west-1"]
    lines += [f"sso_account_id = {ACCOUNT}", "sso_role_name = dev"]
    (tmp_path / "config").write_text("\n".join(lines))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Forbidden, match="the AWS credentials cannot be used") as caught:
        ecr.open_own_registry(profile="work")
    assert "aws sso login --profile work" in str(caught.value.hint)


def answer_metadata(_: HostileServer, request: Received) -> Answer:
    """Answer as the metadata service of an EC2 machine, with its role's credentials and its region."""
    keys = {
        "AccessKeyId": "a",
        "SecretAccessKey": "b",
        "Token": "c",
        "Expiration": "2100-01-01T00:00:00Z",
        "Code": "Success",
    }
    answers = {"credentials/node": json.dumps(keys), "security-credentials/": "node", "availability-zone/": "us-west-2b"}
    answers["api/token"] = "a-token"
    return Answer(body=[next(text for end, text in answers.items() if request.path.endswith(end)).encode()])


def test_machine_role_and_region_are_used(aws: MotoAws, monkeypatch: pytest.MonkeyPatch):
    for name in ("AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.delenv(name)
    with serve(answer_metadata) as machine:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", machine.url)
        assert ecr.open_own_registry().host == f"{ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com"


def test_unknown_region_is_unreachable(aws: MotoAws, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ecr, "ATTEMPTS", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(Unreachable, match="AWS does not answer in region `xx-nowhere-1`"):
        ecr.open_own_registry(region="xx-nowhere-1")
    with pytest.raises(Unreachable, match="AWS does not answer in region `not a region`"):
        ecr.open_own_registry(region="not a region")


@dataclass
class ScriptedAws:
    """Returns the given answers, one for each request, then a token."""

    answers: list[Answer] = field(default_factory=list)
    seen: list[dict[str, Any]] = field(default_factory=list)

    def refuse(self, *refusals: tuple[int, str, str]) -> None:
        self.answers = [json_answer({"__type": code, "message": text}, status) for status, code, text in refusals]
        self.seen.clear()

    def respond(self, _: HostileServer, request: Received) -> Answer:
        self.seen.append(json.loads(request.body))
        token = {"authorizationToken": "QVdTOnNlY3JldA==", "expiresAt": 4102444800.0}
        return self.answers.pop(0) if self.answers else json_answer({"authorizationData": [token]})


@pytest.fixture
def scripted(aws: MotoAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedAws]:
    script = ScriptedAws()
    with serve(script.respond) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_ECR", server.url)
        yield script


def login() -> Login:
    return ecr.open_registry(parse_reference(f"{HOST}/fsdp")).get_login()


def test_throttled_call_is_retried_and_refusal_is_not(scripted: ScriptedAws):
    throttled = (400, "ThrottlingException", "Rate exceeded")
    scripted.refuse(throttled, (503, "ServerException", "busy"))
    assert login().password.reveal() == "secret"
    assert len(scripted.seen) == 3
    scripted.refuse((400, "InvalidParameterException", "no"))
    with pytest.raises(Refused):
        login()
    assert len(scripted.seen) == 1


def test_registry_of_another_account_is_used_by_its_id(scripted: ScriptedAws):
    scripted.refuse((400, "RepositoryNotFoundException", "none"))
    other_registry = ecr.open_registry(parse_reference(f"999999999999.dkr.ecr.{REGION}.amazonaws.com/fsdp"))
    other_registry.ensure_repository("fsdp")
    assert [asked["registryId"] for asked in scripted.seen] == ["999999999999"] * 2


def test_endless_throttling_is_an_error(scripted: ScriptedAws, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ecr, "ATTEMPTS", 2)
    scripted.refuse(*[(400, "ThrottlingException", "Rate exceeded")] * 9)
    with pytest.raises(BackendError, match="AWS failed at `ecr:GetAuthorizationToken`"):
        login()


POLICY = f"User: arn:aws:iam::1:user/x is not authorized to perform: ecr:GetAuthorizationToken on resource: {HOST} "


@pytest.mark.parametrize(
    ("code", "text", "title", "hint"),
    [
        ("ExpiredTokenException", "The security token … is expired", "AWS does not accept these credentials", "aws sso login"),
        ("UnrecognizedClientException", "invalid token", "AWS does not accept these credentials", "aws configure"),
        (
            "AccessDeniedException",
            POLICY + "because no identity-based policy allows it",
            "not allowed to",
            "arn:aws:iam::1:user/x",
        ),
        ("AccessDeniedException", POLICY + "with an explicit deny in a resource-based policy", "not allowed to", "its owner"),
    ],
)
def test_aws_that_moto_cannot_produce(scripted: ScriptedAws, code: str, text: str, title: str, hint: str):
    scripted.refuse((400, code, text))
    with pytest.raises(Forbidden) as caught:
        login()
    assert title in caught.value.title
    assert hint in str(caught.value.hint)
    assert text in str(caught.value.cause)


class StubbedPublic:
    """The public ECR, which moto lacks, with answers from its API model."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import boto3
        from botocore.stub import Stubber

        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
        self.client = boto3.client("ecr-public", region_name="us-east-1", **keys)
        self.stub = Stubber(self.client)
        self.stub.activate()
        monkeypatch.setattr(ecr.Account, "make_client", lambda *_: self.client)
        self.registry = ecr.open_registry(parse_reference("public.ecr.aws/me/fsdp"))


def test_public_registry_with_stubbed_calls(aws: MotoAws, monkeypatch: pytest.MonkeyPatch):
    public = StubbedPublic(monkeypatch)
    assert public.registry.host == "public.ecr.aws"
    end = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
    data = {"authorizationToken": "QVdTOnNlY3JldA==", "expiresAt": end}
    public.stub.add_response("get_authorization_token", {"authorizationData": data}, {})
    assert public.registry.get_login().password.reveal() == "secret"
    public.stub.add_client_error(
        "describe_repositories", "RepositoryNotFoundException", expected_params={"repositoryNames": ["fsdp"]}
    )
    public.stub.add_response("create_repository", {"repository": {"repositoryUri": "public.ecr.aws/me/fsdp"}})
    assert public.registry.ensure_repository("me/fsdp") is True
    public.stub.add_client_error("describe_repositories", "RepositoryNotFoundException")
    public.stub.add_response("create_repository", {"repository": {"repositoryUri": "public.ecr.aws/you/fsdp"}})
    public.stub.add_response("delete_repository", {})
    with pytest.raises(Refused, match="alias `me` of the public ECR belongs to another account"):
        public.registry.ensure_repository("me/fsdp")
    public.stub.assert_no_pending_responses()
