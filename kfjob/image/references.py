"""Image references: `registry/repository:tag@digest`, parsed and printed. Pure.

The grammar is the one that the kubelet and containerd use (github.com/distribution/reference v0.6, regexp.go), with Docker
Hub's defaults (normalize.go). The names of ECR's registries are those of AWS's own credential helper
(amazon-ecr-credential-helper, api/client.go) and of the ECR endpoints page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from kfjob.errors import UsageError

DOCKER_HUB = "docker.io"
DEFAULT_TAG = "latest"

_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_LABEL = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_REGISTRY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::(?P<port>[0-9]{{1,5}}))?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[a-f0-9]{64}|sha512:[a-f0-9]{128}")
_LONGEST_NAME = 255
_LARGEST_PORT = 65535

Partition = Literal["aws", "aws-cn", "aws-us-gov", "other"]
_ECR = re.compile(
    r"(?P<account>[0-9]{12})\.dkr[.-]ecr(?P<fips>-fips)?\.(?P<region>[a-z0-9-]+)\."
    r"(?P<domain>amazonaws\.com(?:\.cn)?|on\.aws|on\.amazonwebservices\.com\.cn|sc2s\.sgov\.gov|c2s\.ic\.gov"
    r"|cloud\.adc-e\.uk|csp\.hci\.ic\.gov)"
)
_ECR_PUBLIC = ("public.ecr.aws", "ecr-public.aws.com")


@dataclass(frozen=True, kw_only=True)
class EcrHost:
    """A registry of ECR, as its host name says. The public one has no account, and its API is in us-east-1."""

    account: str
    region: str
    fips: bool = False
    public: bool = False

    @property
    def partition(self) -> Partition:
        """Which of AWS's worlds, each with its own accounts and endpoints."""
        if self.region.startswith(("us-iso", "eu-isoe")):
            return "other"
        return "aws-cn" if self.region.startswith("cn-") else "aws-us-gov" if self.region.startswith("us-gov-") else "aws"


@dataclass(frozen=True, kw_only=True)
class ImageRef:
    """Where an image is, and which one. `parse` makes it; printed, it is written out in full."""

    registry: str  # host, with the port where one was given
    repository: str  # "library/python"
    tag: str = ""
    digest: str = ""  # "sha256:…"

    def __str__(self) -> str:
        """`registry/repository[:tag][@digest]`, which every runtime reads alike."""
        return self.name + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")

    @property
    def name(self) -> str:
        """`registry/repository`, without what says which image."""
        return f"{self.registry}/{self.repository}"

    @property
    def tag_or_digest(self) -> str:
        """What a registry is asked for: the digest, else the tag, else `latest`."""
        return self.digest or self.tag or DEFAULT_TAG

    @property
    def is_latest(self) -> bool:
        """Whether it is another image tomorrow."""
        return self.tag_or_digest == DEFAULT_TAG

    @property
    def host(self) -> str:
        """Where the registry's API is: Docker Hub's has another name than the registry."""
        return "registry-1.docker.io" if self.registry == DOCKER_HUB else self.registry

    @property
    def ecr(self) -> EcrHost | None:
        """What the host name says, where it is one of ECR's."""
        return parse_ecr_host(self.registry)

    def with_digest(self, digest: str) -> ImageRef:
        """The image of this digest. A tag stays for people to read; runtimes then go by the digest."""
        return replace(self, digest=digest)

    def with_tag(self, tag: str) -> ImageRef:
        """Another image of the same repository."""
        return replace(self, tag=tag, digest="")


def parse_reference(text: str) -> ImageRef:
    """The parts of a reference. Neither tag nor digest is made up.

    Raises:
        UsageError: a runtime could not read it either; the cause says which part is at fault.
    """
    for cause, hint in _faults_of_text(text):
        raise _invalid(text, cause, hint)
    rest, at, digest = text.partition("@")
    head, slash, tail = rest.rpartition("/")
    last, colon, tag = tail.partition(":")
    registry, repository = _split_registry(f"{head}{slash}{last}")
    found = ImageRef(registry=registry, repository=repository, tag=tag, digest=digest)
    for cause, hint in _faults_of_parts(found, colon=bool(colon), at=bool(at)):
        raise _invalid(text, cause, hint)
    return found


def parse_ecr_host(host: str) -> EcrHost | None:
    """What the host name of a registry says, if it is one of ECR's."""
    if host in _ECR_PUBLIC:
        return EcrHost(account="", region="us-east-1", public=True)
    if found := _ECR.fullmatch(host):
        return EcrHost(account=found["account"], region=found["region"], fips=bool(found["fips"]))
    return None


def format_ecr_host(account: str, region: str, *, fips: bool = False) -> str:
    """The host name of an account's private registry."""
    end = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"{account}.dkr.ecr{'-fips' if fips else ''}.{region}.{end}"


def _split_registry(name: str) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    if slash and (first == "localhost" or any(c in ".:[" for c in first) or first != first.lower()):
        registry, repository = first, rest
    else:
        registry, repository = DOCKER_HUB, name
    if registry in ("index.docker.io", "registry-1.docker.io"):
        registry = DOCKER_HUB
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return registry, repository


Fault = tuple[str, str | None]  # cause, hint


def _faults_of_text(text: str) -> Iterator[Fault]:
    if not text:
        yield "it is empty", "REGISTRY/REPOSITORY:TAG"
    if any(c.isspace() for c in text):
        yield "it holds white space", None
    if "://" in text:
        yield "an image is named without a scheme", f"`{text.partition('://')[2]}`"
    if "$" in text:
        yield "a variable in it was not replaced", "give its value with `--env-file` or `--var`"
    if re.fullmatch(r"[a-f0-9]{64}", text):
        yield "64 hexadecimal digits are the id of an image, not its name", "name its repository: `REPOSITORY@sha256:…`"


def _faults_of_parts(ref: ImageRef, *, colon: bool, at: bool) -> Iterator[Fault]:
    shown = ref.repository.removeprefix("library/") if ref.registry == DOCKER_HUB else ref.repository
    host = _REGISTRY.fullmatch(ref.registry)
    if not host or int(host["port"] or 1) > _LARGEST_PORT:
        yield f"`{ref.registry}` is not the name of a host, with or without a port", None
    if not shown:
        yield "no repository is named", f"`{ref.registry}/REPOSITORY:TAG`"
    if shown != shown.lower():
        yield f"`{shown}` has capital letters, and a repository may not", f"`{shown.lower()}`"
    if not _REPOSITORY.fullmatch(ref.repository):
        yield f"`{shown}` is not the name of a repository: a-z, 0-9 and between them `.`, `_`, `__`, `-` and `/`", None
    if len(ref.name) > _LONGEST_NAME:
        yield f"`{shown}` is too long: {len(ref.name)} characters with its registry, and {_LONGEST_NAME} may be", None
    if colon and not _TAG.fullmatch(ref.tag):
        yield f"`{ref.tag}` is not a tag: up to 128 of A-Z, a-z, 0-9, `_`, `.`, `-`, the first not `.` or `-`", None
    if at and not _DIGEST.fullmatch(ref.digest):
        yield f"`{ref.digest}` is not a digest: `sha256:` and 64 hexadecimal digits", "`kfjob push-image` prints one"


def _invalid(text: str, cause: str, hint: str | None) -> UsageError:
    return UsageError(f"`{text}` is not the name of an image", cause=cause, hint=hint)
