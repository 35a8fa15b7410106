"""ImageSpec: an image to build and the repository to push it to. Pure."""

from typing import Annotated

from pydantic import Field, field_validator

from kfjob.image.build.engines import BUILDERS
from kfjob.validation.spec_model import SpecModel, field_error

AUTO = "auto"

BuildArg = Annotated[str, Field(max_length=32_000)]


class ImageSpec(SpecModel):
    """An image to build and push."""

    context: str = Field(default=".", description="Build context: the folder that the Dockerfile copies from")
    dockerfile: str | None = Field(default=None, description="Path of the Dockerfile; default: `Dockerfile` in the context")
    to: str | None = Field(
        default=None,
        description="Repository: `[HOST/]NAME[:TAG]`; without a host, the ECR registry of your account; default: the name of "
        "the context's folder",
    )
    tag: str | None = Field(
        default=None, description="Tag, instead of the one in `to`; `auto` (the default) is a hash of the build's inputs"
    )
    build_args: dict[str, BuildArg] = Field(default_factory=dict, description="Values of the Dockerfile's ARGs by name")
    secrets: dict[str, str] = Field(default_factory=dict, description="Files for `RUN --mount=type=secret` by id")
    target: str | None = Field(default=None, description="Stage of the Dockerfile to build; default: the last one")
    platform: str = Field(default="linux/amd64", description="Platform of the nodes")
    base_image: str | None = Field(default=None, description="Value of the build argument BASE_IMAGE")
    builder: str | None = Field(
        default=None, description=f"Program that builds; default: the first of {', '.join(BUILDERS)} on PATH"
    )
    no_cache: bool = Field(default=False, description="Build every layer again, even if the registry has it")
    profile: str | None = Field(default=None, description="Profile of the AWS configuration")
    region: str | None = Field(default=None, description="AWS region")

    @field_validator("builder")
    @classmethod
    def _check_builder(cls, value: str | None) -> str | None:
        if value is not None and value.rpartition("/")[2] not in BUILDERS:
            raise field_error("builder", f"unknown builder `{value}`", hint=f"use one of {', '.join(BUILDERS)}")
        return value

    @field_validator("platform")
    @classmethod
    def _check_platform(cls, value: str) -> str:
        if not value.startswith("linux/") or "," in value:
            raise field_error(
                "platform", f"`{value}` is not a single Linux platform", hint="use `linux/amd64` or `linux/arm64`"
            )
        return value

    def all_build_args(self) -> dict[str, str]:
        """Return the build arguments, with BASE_IMAGE if a base image is set."""
        return self.build_args | ({"BASE_IMAGE": self.base_image} if self.base_image else {})
