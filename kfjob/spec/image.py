"""ImageSpec: what is built, and where it is to go. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from kfjob.spec.base import SpecModel
from kfjob.spec.fields import field_error

BUILDERS = ("docker", "buildah", "podman", "nerdctl", "finch")

AUTO = "auto"

BuildArg = Annotated[str, Field(max_length=32_000)]


class RepositoryOptions(SpecModel):
    """How a repository of ECR is made where there is none. One that is there is left as it is."""

    scan_on_push: bool = Field(default=False, description="look for known vulnerabilities in every image")
    immutable_tags: bool = Field(default=False, description="a tag that is taken stays what it is")
    keep_images: int | None = Field(default=None, ge=1, description="the newest so many images are kept, older ones expire")
    kms_key: str | None = Field(default=None, description="encrypt with this KMS key, `aws/ecr` for AWS's own; unset: AES-256")


class ImageSpec(SpecModel):
    """An image to build and push."""

    context: str = Field(default=".", description="folder that the Dockerfile's COPY sees")
    dockerfile: str | None = Field(default=None, description="unset: `Dockerfile` in the context")
    to: str | None = Field(
        default=None,
        description="`NAME`, `NAME:TAG` in the ECR registry of one's own account, or with a registry's host before it; "
        "unset: the name of the context's folder",
    )
    tag: str | None = Field(default=None, description="over the one of `to`; `auto`, the default: a hash of all that is built")
    build_args: dict[str, BuildArg] = Field(default_factory=dict)
    secrets: dict[str, str] = Field(default_factory=dict, description="files for `RUN --mount=type=secret`, by id")
    target: str | None = Field(default=None, description="stage of the Dockerfile")
    platform: str = Field(default="linux/amd64", description="of the nodes")
    base_image: str | None = Field(default=None, description="the build argument BASE_IMAGE")
    builder: str | None = Field(default=None, description="unset: the first on PATH of " + ", ".join(BUILDERS))
    no_cache: bool = False
    profile: str | None = Field(default=None, description="of the AWS configuration")
    region: str | None = Field(default=None, description="of AWS")
    repository: RepositoryOptions = RepositoryOptions()

    @field_validator("builder")
    @classmethod
    def _known_builder(cls, value: str | None) -> str | None:
        if value is not None and value.rpartition("/")[2] not in BUILDERS:
            raise field_error("builder", f"`{value}` is not a builder that kfjob knows", hint=f"one of {', '.join(BUILDERS)}")
        return value

    @field_validator("platform")
    @classmethod
    def _one_platform(cls, value: str) -> str:
        if not value.startswith("linux/") or "," in value:
            raise field_error("platform", f"`{value}` is not one platform of Linux", hint="`linux/amd64` or `linux/arm64`")
        return value

    def all_build_args(self) -> dict[str, str]:
        """With the base image."""
        return self.build_args | ({"BASE_IMAGE": self.base_image} if self.base_image else {})
