"""Parse and print image references: `registry/repository:tag@digest`. Pure.

The grammar is that of the kubelet and containerd (github.com/distribution/reference v0.6, regexp.go), with Docker
Hub's defaults (normalize.go). The names of ECR's registries are those of AWS's own credential helper
(amazon-ecr-credential-helper, api/client.go) and of the ECR endpoints page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from kfjob.base.errors import UsageError

DOCKER_HUB = "docker.io"
DEFAULT_TAG = "latest"

_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_LABEL = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_REGISTRY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::(?P<port>[0-9]{{1,5}}))?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
DIGEST = r"^(?:sha256:[a-f0-9]{64}|sha512:[a-f0-9]{128})\Z"
"""The pattern of a digest. Each digest that a registry sends matches it before it becomes a part of a URL."""
_LONGEST_NAME = 255
_LARGEST_PORT = 65535

ECR_HOST = (
    r"(?P<account>[0-9]{12})\.dkr[.-]ecr(?P<fips>-fips)?\.(?P<region>[a-z0-9-]+)\."
    r"(?:amazonaws\.com(?:\.cn)?|on\.aws|on\.amazonwebservices\.com\.cn)"
)
_ECR_PUBLIC = ("public.ecr.aws", "ecr-public.aws.com")


class EcrHost(Struct, frozen=True, kw_only=True):
    """The parts of an ECR registry's host name. The public registry has no account, and its API is in us-east-1."""

    account: str
    region: str
    fips: bool = False
    public: bool = False


class ImageRef(Struct, frozen=True, kw_only=True):
    """A parsed image reference; its text is the full form."""

    registry: str  # host, with its port if the reference has one
    repository: str  # "library/python"
    tag: str = ""  # "" without one
    digest: str = ""  # "sha256:…"

    def __str__(self) -> str:
        """`registry/repository[:tag][@digest]`, which every runtime reads the same way."""
        return self.name + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")

    @property
    def name(self) -> str:
        """`registry/repository`, without tag and digest."""
        return f"{self.registry}/{self.repository}"

    @property
    def tag_or_digest(self) -> str:
        """The reference within the repository: the digest, else the tag, else `latest`."""
        return self.digest or self.tag or DEFAULT_TAG

    @property
    def is_latest(self) -> bool:
        """Whether the reference names the tag `latest`, which may be another image tomorrow."""
        return self.tag_or_digest == DEFAULT_TAG

    @property
    def host(self) -> str:
        """The host of the registry's API, which differs from the registry's name for Docker Hub."""
        return "registry-1.docker.io" if self.registry == DOCKER_HUB else self.registry

    @property
    def ecr(self) -> EcrHost | None:
        """The parts of the host name, if the registry is ECR."""
        return parse_ecr_host(self.registry)

    def with_digest(self, digest: str) -> ImageRef:
        """Return the reference with a digest. A tag stays as information; runtimes use the digest."""
        return replace(self, digest=digest)

    def with_tag(self, tag: str) -> ImageRef:
        """Return the reference of another tag in the same repository."""
        return replace(self, tag=tag, digest="")


def parse_reference(text: str) -> ImageRef:
    """Return the parts of a reference. It adds neither a tag nor a digest.

    Raises:
        UsageError: the text is not an image reference; the cause names the invalid part.
    """
    for cause, hint in _check_text(text):
        raise _make_error(text, cause, hint)
    rest, at_sign, digest = text.partition("@")
    path, slash, last = rest.rpartition("/")
    name, colon, tag = last.partition(":")
    registry, repository = _split_registry(f"{path}{slash}{name}")
    ref = ImageRef(registry=registry, repository=repository, tag=tag, digest=digest)
    for cause, hint in _check_parts(ref, has_tag=bool(colon), has_digest=bool(at_sign)):
        raise _make_error(text, cause, hint)
    return ref


def is_digest(text: str) -> bool:
    """Return whether a text is a digest that kfjob can verify."""
    return re.match(DIGEST, text) is not None


def parse_ecr_host(host: str) -> EcrHost | None:
    """Return the parts of an ECR registry's host name; None for another registry."""
    if host in _ECR_PUBLIC:
        return EcrHost(account="", region="us-east-1", public=True)
    if match := re.fullmatch(ECR_HOST, host):
        return EcrHost(account=match["account"], region=match["region"], fips=bool(match["fips"]))
    return None


def format_ecr_host(account: str, region: str, *, fips: bool = False) -> str:
    """Return the host name of an account's private registry."""
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"{account}.dkr.ecr{'-fips' if fips else ''}.{region}.{domain}"


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


_Problem = tuple[str, str | None]  # cause, hint


def _check_text(text: str) -> Iterator[_Problem]:
    if not text:
        yield "it is empty", "REGISTRY/REPOSITORY:TAG"
    if any(c.isspace() for c in text):
        yield "it contains white space", None
    if "://" in text:
        yield "it has a URL scheme", f"`{text.partition('://')[2]}`"
    if "$" in text:
        yield "it contains a variable that was not substituted", "set its value with `--env-file` or `--var`"
    if re.fullmatch(r"[a-f0-9]{64}", text):
        yield "64 hexadecimal digits are an image id, not a name", "name the repository: `REPOSITORY@sha256:…`"


def _check_parts(ref: ImageRef, *, has_tag: bool, has_digest: bool) -> Iterator[_Problem]:
    repository = ref.repository.removeprefix("library/") if ref.registry == DOCKER_HUB else ref.repository
    host = _REGISTRY.fullmatch(ref.registry)
    if not host or int(host["port"] or 1) > _LARGEST_PORT:
        yield f"`{ref.registry}` is not a host name with an optional port", None
    if not repository:
        yield "it has no repository", f"`{ref.registry}/REPOSITORY:TAG`"
    if repository != repository.lower():
        yield f"repository `{repository}` has capital letters", f"`{repository.lower()}`"
    if not _REPOSITORY.fullmatch(ref.repository):
        yield f"`{repository}` is not a repository: a-z and 0-9, separated by `.`, `_`, `__`, `-` or `/`", None
    if len(ref.name) > _LONGEST_NAME:
        yield f"`{repository}` with its registry has {len(ref.name)} characters, the limit is {_LONGEST_NAME}", None
    if has_tag and not _TAG.fullmatch(ref.tag):
        yield f"`{ref.tag}` is not a tag: up to 128 of A-Z, a-z, 0-9, `_`, `.`, `-`, not starting with `.` or `-`", None
    if has_digest and not is_digest(ref.digest):
        yield f"`{ref.digest}` is not a digest: `sha256:` and 64 hexadecimal digits", "`kfjob push-image` prints a digest"


def _make_error(text: str, cause: str, hint: str | None) -> UsageError:
    return UsageError(f"`{text}` is not an image reference", cause=cause, hint=hint)
