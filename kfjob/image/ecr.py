"""ECR: whose account and region, which registry, its repositories, and the token to push and pull with.

Everything is found as the AWS CLI v2 finds it: a profile, the environment, SSO, a web identity, the machine's own role; the
region also from `AWS_REGION`, which boto3 alone does not read, and from the machine. boto3 is imported where it is used.
Calls that are throttled, or fail on AWS's side, are repeated with growing, random pauses (botocore's `standard` mode).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kfjob.errors import Forbidden, KfjobError, Refused, UsageError
from kfjob.image import ecr_errors
from kfjob.image.references import EcrHost, ImageRef, format_ecr_host
from kfjob.image.registry.secrets import Login, Secret
from kfjob.spec.image import RepositoryOptions

PUBLIC_HOST = "public.ecr.aws"
PUBLIC_REGION = "us-east-1"
ATTEMPTS = 8
CONNECT_SECONDS = 10


@dataclass(frozen=True, kw_only=True)
class Token:
    """A login that ends."""

    login: Login
    expires: float  # seconds since the epoch


@dataclass(frozen=True, kw_only=True)
class Account:
    """Who asks, and where: one way into AWS."""

    session: Any = field(repr=False)  # boto3.Session
    region: str
    profile: str | None = None
    fips: bool = False

    def make_client(self, service: str, region: str | None = None) -> Any:
        """A client of one service."""
        from botocore.config import Config

        retries = {"mode": "standard", "total_max_attempts": ATTEMPTS}
        config = Config(retries=retries, use_fips_endpoint=self.fips, connect_timeout=CONNECT_SECONDS)
        with self.translate_errors(f"{service}:*"):
            return self.session.client(service, region_name=region or self.region, config=config)

    def get_id(self) -> str:
        """The twelve digits of the account that the credentials belong to.

        Raises:
            Forbidden: there are no credentials, or they are not (any more) valid.
        """
        with self.translate_errors("sts:GetCallerIdentity"):
            return str(self.make_client("sts").get_caller_identity()["Account"])

    def translate_errors(self, action: str, what: str = "") -> contextlib.AbstractContextManager[None]:
        """Errors of botocore become ours within; `action` is what is asked for, `what` it is about."""
        return ecr_errors.translate_errors(action, what, profile=self.profile, region=self.region)


def open_account(*, profile: str | None = None, region: str | None = None, fips: bool | None = None) -> Account:
    """The way into AWS that the flags, the environment, the profile and the machine lead to; nothing is asked yet.

    Raises:
        UsageError: there is no such profile, or no region is said anywhere.
        Forbidden: there are no credentials.
    """
    import boto3

    profile = profile or os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or None
    with ecr_errors.translate_errors("", "", profile=profile, region=region or ""):
        found = region or os.environ.get("AWS_REGION") or None
        session = boto3.Session(profile_name=profile, region_name=found)
        found = session.region_name or _region_of_this_machine(session)
        if not found:
            hint = "`--region eu-west-1`, `AWS_REGION`, or `aws configure set region …`"
            raise UsageError("no AWS region is said anywhere", hint=hint)
        if session.get_credentials() is None:
            raise ecr_errors.make_credentials_error(profile)
    return Account(session=session, region=found, profile=profile, fips=_wants_fips(session) if fips is None else fips)


def _region_of_this_machine(session: Any) -> str | None:
    from botocore.utils import IMDSRegionProvider

    found = IMDSRegionProvider(session._session).provide()  # noqa: SLF001 - the only way from boto3 to its botocore
    return str(found) if found else None


def _wants_fips(session: Any) -> bool:
    return bool(session._session.get_config_variable("use_fips_endpoint"))  # noqa: SLF001 - the same


@dataclass(frozen=True, kw_only=True)
class PrivateRegistry:
    """One private registry of ECR, asked through one account's rights."""

    account: Account
    id: str
    host: str

    @property
    def _client(self) -> Any:
        return self.account.make_client("ecr")

    def repository_exists(self, name: str) -> bool:
        """Whether there is a repository of exactly this name."""
        with self._translate_errors("DescribeRepositories", name), ecr_errors.absent("RepositoryNotFoundException") as gone:
            self._client.describe_repositories(registryId=self.id, repositoryNames=[name])
        return not gone

    def ensure_repository(self, name: str, options: RepositoryOptions) -> bool:
        """Make the repository if there is none; whether it was made. One that is there is left as it is.

        Raises:
            Forbidden, Refused: it was not made, and nothing is left of the attempt.
        """
        if self.repository_exists(name):
            return False
        wanted: dict[str, Any] = {
            "repositoryName": name,
            "imageScanningConfiguration": {"scanOnPush": options.scan_on_push},
            "imageTagMutability": "IMMUTABLE" if options.immutable_tags else "MUTABLE",
            "encryptionConfiguration": {"encryptionType": "AES256"},
        }
        if options.kms_key:
            key = {} if options.kms_key == "aws/ecr" else {"kmsKey": options.kms_key}
            wanted["encryptionConfiguration"] = {"encryptionType": "KMS", **key}
        client = self._client
        with self._translate_errors("CreateRepository", name), ecr_errors.absent("RepositoryAlreadyExistsException") as taken:
            client.create_repository(registryId=self.id, **wanted)
        if not taken and options.keep_images:
            self._add_lifecycle_rule(client, name, options.keep_images)
        return not taken

    def _add_lifecycle_rule(self, client: Any, name: str, count: int) -> None:
        selection = {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": count}
        rule = {"rulePriority": 1, "description": "kfjob", "selection": selection, "action": {"type": "expire"}}
        try:
            with self._translate_errors("PutLifecyclePolicy", name):
                policy = json.dumps({"rules": [rule]})
                client.put_lifecycle_policy(registryId=self.id, repositoryName=name, lifecyclePolicyText=policy)
        except KfjobError as err:
            try:
                client.delete_repository(registryId=self.id, repositoryName=name)
            except Exception as left:
                err.cause = f"{err.cause}\nthe new repository `{name}` was left without the rule: {left}"
                raise err from left
            raise

    def find_digest(self, repository: str, tag: str) -> str | None:
        """The digest of the image that has this tag (or digest), if there is one."""
        by = "imageDigest" if tag.startswith("sha256:") else "imageTag"
        nothing = ("ImageNotFoundException", "RepositoryNotFoundException")
        found: dict[str, Any] = {}
        with self._translate_errors("DescribeImages", repository), ecr_errors.absent(*nothing):
            found = self._client.describe_images(registryId=self.id, repositoryName=repository, imageIds=[{by: tag}])
        return str(found["imageDetails"][0]["imageDigest"]) if found else None

    def has_immutable_tags(self, repository: str) -> bool:
        """Whether a tag that is taken stays what it is."""
        with self._translate_errors("DescribeRepositories", repository):
            found = self._client.describe_repositories(registryId=self.id, repositoryNames=[repository])
        return str(found["repositories"][0].get("imageTagMutability", "")).startswith("IMMUTABLE")

    def get_token(self) -> Token:
        """A fresh one; it is good for every private registry that these credentials may use, for twelve hours."""
        with self._translate_errors("GetAuthorizationToken", self.host):
            data = self._client.get_authorization_token()["authorizationData"][0]
        return _token(data)

    def get_login(self) -> Login:
        """The same, as a registry is told it. Asked anew when a push outlives it."""
        return self.get_token().login

    @contextlib.contextmanager
    def _translate_errors(self, action: str, what: str) -> Iterator[None]:
        with self.account.translate_errors(f"ecr:{action}", f"{self.host}/{what}" if what != self.host else what):
            yield


@dataclass(frozen=True, kw_only=True)
class PublicRegistry:
    """The public gallery (public.ecr.aws): repositories of one's own account, under its alias."""

    account: Account
    host: str = PUBLIC_HOST

    @property
    def _client(self) -> Any:
        return self.account.make_client("ecr-public", PUBLIC_REGION)

    def ensure_repository(self, name: str, options: RepositoryOptions) -> bool:
        """Make the repository if there is none; whether it was made. `name` begins with the account's alias."""
        if options != RepositoryOptions():
            raise UsageError(
                "the public ECR has no scans, lifecycle rules, keys or immutable tags", hint="leave the options out"
            )
        alias, _, rest = name.partition("/")
        client = self._client
        with self._translate_errors("DescribeRepositories", name), ecr_errors.absent("RepositoryNotFoundException") as gone:
            client.describe_repositories(repositoryNames=[rest])
        if not gone:
            return False
        with self._translate_errors("CreateRepository", name), ecr_errors.absent("RepositoryAlreadyExistsException") as taken:
            made = client.create_repository(repositoryName=rest)["repository"]["repositoryUri"]
            if made != f"{self.host}/{name}":
                client.delete_repository(repositoryName=rest)
                cause = f"this account's repositories stand under `{made.split('/')[1]}`"
                raise Refused(f"alias `{alias}` of the public ECR is another account's", cause=cause)
        return not taken

    def find_digest(self, repository: str, tag: str) -> str | None:
        """The digest of the image that has this tag, if there is one."""
        by = "imageDigest" if tag.startswith("sha256:") else "imageTag"
        nothing = ("ImageNotFoundException", "RepositoryNotFoundException")
        found: dict[str, Any] = {}
        with self._translate_errors("DescribeImages", repository), ecr_errors.absent(*nothing):
            name = repository.partition("/")[2]
            found = self._client.describe_images(repositoryName=name, imageIds=[{by: tag}])
        return str(found["imageDetails"][0]["imageDigest"]) if found else None

    def has_immutable_tags(self, repository: str) -> bool:  # noqa: ARG002 - the private registry's form
        """Never: the public registry has no such thing."""
        return False

    def get_token(self) -> Token:
        """A fresh one, for the public registry alone."""
        with self._translate_errors("GetAuthorizationToken", self.host):
            return _token(self._client.get_authorization_token()["authorizationData"])

    def get_login(self) -> Login:
        """The same, as a registry is told it."""
        return self.get_token().login

    @contextlib.contextmanager
    def _translate_errors(self, action: str, what: str) -> Iterator[None]:
        with self.account.translate_errors(f"ecr-public:{action}", f"{self.host}/{what}" if what != self.host else what):
            yield


def open_registry(ref: ImageRef, *, profile: str | None = None) -> PrivateRegistry | PublicRegistry:
    """The registry that an image's name says, which may be another account's and in another region than ours.

    Raises:
        UsageError: the name is not one of ECR's.
    """
    said: EcrHost | None = ref.ecr
    if said is None:
        raise UsageError(f"`{ref.registry}` is not a registry of ECR")
    if said.public:
        return PublicRegistry(account=open_account(profile=profile, region=PUBLIC_REGION))
    where = open_account(profile=profile, region=said.region, fips=said.fips or None)
    return PrivateRegistry(account=where, id=said.account, host=ref.registry)


def open_own_registry(*, profile: str | None = None, region: str | None = None) -> PrivateRegistry:
    """The private registry of the account that the credentials belong to."""
    where = open_account(profile=profile, region=region)
    number = where.get_id()
    return PrivateRegistry(account=where, id=number, host=format_ecr_host(number, where.region, fips=where.fips))


def _token(data: dict[str, Any]) -> Token:
    try:
        user, colon, password = base64.b64decode(data["authorizationToken"], validate=True).decode().partition(":")
    except ValueError:  # which holds the token
        user = colon = password = ""
    if not colon:
        raise Forbidden("ECR's token cannot be read")
    return Token(login=Login(user=user, password=Secret(password)), expires=data["expiresAt"].timestamp())
