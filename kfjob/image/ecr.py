"""ECR: the account and region, its registries and repositories, and the token to push and pull.

Credentials are found as the AWS CLI v2 finds them: a profile, the environment, SSO, a web identity, the machine's own role.
The region comes from the same sources, from `AWS_REGION`, which boto3 alone does not read, and from the machine. Calls that
are throttled or fail on AWS's side are retried with growing, random pauses (botocore's `standard` mode). boto3 is imported
where it is used.
"""

from __future__ import annotations

import base64
import contextlib
import os
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from kfjob.base import aws
from kfjob.base.errors import Refused, UsageError
from kfjob.image.references import ImageRef, format_ecr_host
from kfjob.image.registry.secrets import Login, Secret

PUBLIC_HOST = "public.ecr.aws"
PUBLIC_REGION = "us-east-1"
ATTEMPTS = 8
CONNECT_SECONDS = 10
"""Timeout of a connection to the ECR API."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """An AWS session in a region."""

    session: Any = field(repr=False)  # boto3.Session
    region: str
    profile: str | None = None
    fips: bool = False

    def make_client(self, service: str, region: str | None = None) -> Any:
        """Return a boto3 client of a service."""
        from botocore.config import Config

        retries = {"mode": "standard", "total_max_attempts": ATTEMPTS}
        config = Config(retries=retries, use_fips_endpoint=self.fips, connect_timeout=CONNECT_SECONDS)
        with self.translate_errors(f"{service}:*"):
            return self.session.client(service, region_name=region or self.region, config=config)

    def get_id(self) -> str:
        """Return the twelve digits of the account that the credentials belong to.

        Raises:
            Forbidden: the credentials are missing, invalid or expired.
        """
        with self.translate_errors("sts:GetCallerIdentity"):
            return str(self.make_client("sts").get_caller_identity()["Account"])

    def translate_errors(self, action: str, resource: str = "") -> contextlib.AbstractContextManager[None]:
        """Raise errors of botocore in the block as a KfjobError; `action` is the AWS action."""
        return aws.translate_errors(action, resource, profile=self.profile, region=self.region)


def open_account(*, profile: str | None = None, region: str | None = None, fips: bool | None = None) -> Account:
    """Return the session for the flags, the environment, the profile and the machine. It sends no request to AWS.

    Raises:
        UsageError: the profile does not exist, or no region is configured.
        Forbidden: the credentials are missing.
    """
    profile = profile or os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or None
    with aws.translate_errors("", "", profile=profile, region=region or ""):
        session = aws.open_session(profile=profile, region=region)
        session_region = session.region_name or _read_machine_region(session)
        if not session_region:
            hint = "set `--region eu-west-1` or `AWS_REGION`, or run `aws configure set region …`"
            raise UsageError("no AWS region is configured", hint=hint)
        if session.get_credentials() is None:
            raise aws.make_credentials_error(profile)
    use_fips = _is_fips_configured(session) if fips is None else fips
    return Account(session=session, region=session_region, profile=profile, fips=use_fips)


def _read_machine_region(session: Any) -> str | None:
    """Return the region of the EC2 machine, from its metadata service."""
    from botocore.utils import IMDSRegionProvider

    region = IMDSRegionProvider(session._session).provide()  # noqa: SLF001 - the only way from boto3 to its botocore
    return str(region) if region else None


def _is_fips_configured(session: Any) -> bool:
    return bool(session._session.get_config_variable("use_fips_endpoint"))  # noqa: SLF001 - the same


class PrivateRegistry(Struct, frozen=True, kw_only=True):
    """A private registry of ECR, and the account that accesses it."""

    account: Account
    id: str  # the account that owns the registry
    host: str

    @property
    def _client(self) -> Any:
        return self.account.make_client("ecr")

    def repository_exists(self, name: str) -> bool:
        """Return whether a repository has exactly this name."""
        with self._translate_errors("DescribeRepositories", name):
            response = aws.call_or_none(
                lambda: self._client.describe_repositories(registryId=self.id, repositoryNames=[name]),
                "RepositoryNotFoundException",
            )
        return response is not None

    def ensure_repository(self, name: str) -> bool:
        """Create the repository with AWS's defaults if it does not exist, and return whether it was created.

        Raises:
            Forbidden, Refused: the repository was not created.
        """
        if self.repository_exists(name):
            return False
        client = self._client
        with self._translate_errors("CreateRepository", name):
            response = aws.call_or_none(
                lambda: client.create_repository(registryId=self.id, repositoryName=name), "RepositoryAlreadyExistsException"
            )
        return response is not None

    def has_immutable_tags(self, repository: str) -> bool:
        """Return whether the repository's tags are immutable."""
        with self._translate_errors("DescribeRepositories", repository):
            response = self._client.describe_repositories(registryId=self.id, repositoryNames=[repository])
        return str(response["repositories"][0].get("imageTagMutability", "")).startswith("IMMUTABLE")

    def get_login(self) -> Login:
        """Return a new login. It is valid for twelve hours, for every private registry that the credentials may use."""
        with self._translate_errors("GetAuthorizationToken", self.host):
            return _parse_token(self._client.get_authorization_token()["authorizationData"][0])

    def _translate_errors(self, action: str, repository: str) -> contextlib.AbstractContextManager[None]:
        resource = repository if repository == self.host else f"{self.host}/{repository}"
        return self.account.translate_errors(f"ecr:{action}", resource)


class PublicRegistry(Struct, frozen=True, kw_only=True):
    """The public registry (public.ecr.aws), used with the credentials of one account."""

    account: Account
    host: str = PUBLIC_HOST

    @property
    def _client(self) -> Any:
        return self.account.make_client("ecr-public", PUBLIC_REGION)

    def ensure_repository(self, name: str) -> bool:
        """Create the repository if it does not exist, and return whether it was created. `name` starts with the alias."""
        alias, _, repository = name.partition("/")
        client = self._client
        with self._translate_errors("DescribeRepositories", name):
            response = aws.call_or_none(
                lambda: client.describe_repositories(repositoryNames=[repository]), "RepositoryNotFoundException"
            )
        if response is not None:
            return False
        with self._translate_errors("CreateRepository", name):
            response = aws.call_or_none(
                lambda: client.create_repository(repositoryName=repository), "RepositoryAlreadyExistsException"
            )
            if response is None:
                return False
            uri = response["repository"]["repositoryUri"]
            if uri != f"{self.host}/{name}":
                client.delete_repository(repositoryName=repository)
                cause = f"the alias of this account is `{uri.split('/')[1]}`"
                raise Refused(f"alias `{alias}` of the public ECR belongs to another account", cause=cause)
        return True

    def has_immutable_tags(self, repository: str) -> bool:  # noqa: ARG002 - the signature of `PrivateRegistry`
        """Return False: the public registry has no immutable tags."""
        return False

    def get_login(self) -> Login:
        """Return a new login for the public registry."""
        with self._translate_errors("GetAuthorizationToken", self.host):
            return _parse_token(self._client.get_authorization_token()["authorizationData"])

    def _translate_errors(self, action: str, repository: str) -> contextlib.AbstractContextManager[None]:
        resource = repository if repository == self.host else f"{self.host}/{repository}"
        return self.account.translate_errors(f"ecr-public:{action}", resource)


def open_registry(ref: ImageRef, *, profile: str | None = None) -> PrivateRegistry | PublicRegistry:
    """Return the ECR registry of an image. It may belong to another account and region.

    Raises:
        UsageError: the image is not in ECR.
    """
    host = ref.ecr
    if host is None:
        raise UsageError(f"`{ref.registry}` is not an ECR registry")
    if host.public:
        return PublicRegistry(account=open_account(profile=profile, region=PUBLIC_REGION))
    account = open_account(profile=profile, region=host.region, fips=host.fips or None)
    return PrivateRegistry(account=account, id=host.account, host=ref.registry)


def open_own_registry(*, profile: str | None = None, region: str | None = None) -> PrivateRegistry:
    """Return the private registry of the account that the credentials belong to."""
    account = open_account(profile=profile, region=region)
    account_id = account.get_id()
    host = format_ecr_host(account_id, account.region, fips=account.fips)
    return PrivateRegistry(account=account, id=account_id, host=host)


def _parse_token(data: dict[str, Any]) -> Login:
    user, _, password = base64.b64decode(data["authorizationToken"]).decode().partition(":")
    return Login(user=user, password=Secret(password))
