from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfjob.base.errors import UsageError
from kfjob.image.references import EcrHost, ImageRef, format_ecr_host, parse_reference

SHA = "sha256:" + "0a" * 32
ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag", "digest"),
    [
        ("python", "docker.io", "library/python", "", ""),
        ("python:3.11-slim", "docker.io", "library/python", "3.11-slim", ""),
        ("pytorch/pytorch:2.11", "docker.io", "pytorch/pytorch", "2.11", ""),
        ("index.docker.io/a/b", "docker.io", "a/b", "", ""),
        ("localhost/a", "localhost", "a", "", ""),
        ("localhost:5000/a:1", "localhost:5000", "a", "1", ""),
        ("[::1]:5000/a/b:1", "[::1]:5000", "a/b", "1", ""),
        (f"{ECR}/team/train:v1@{SHA}", ECR, "team/train", "v1", SHA),
        ("ghcr.io/a__b/c-d.e:_x", "ghcr.io", "a__b/c-d.e", "_x", ""),
    ],
)
def test_reference_parts(text, registry, repository, tag, digest):
    ref = parse_reference(text)
    assert ref == ImageRef(registry=registry, repository=repository, tag=tag, digest=digest)
    assert parse_reference(str(ref)) == ref


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "it is empty"),
        (" a", "white space"),
        ("https://quay.io/a:1", "URL scheme"),
        ("${IMAGE}", "a variable"),
        ("0a" * 32, "an image id"),
        ("quay.io/", "no repository"),
        ("quay.io/Team/a", "`Team/a` has capital letters"),
        ("a//b", "`a//b` is not a repository"),
        ("quay.io/a:", "`` is not a tag"),
        ("a:" + "x" * 129, "is not a tag"),
        ("a@sha256:12", "`sha256:12` is not a digest"),
        ("quay.io:port/a", "`quay.io:port` is not a host name"),
        ("-x.io/a", "`-x.io` is not a host name"),
        ("quay.io/" + "a" * 250, "258 characters, the limit is 255"),
    ],
)
def test_invalid_reference_has_a_cause(text, cause):
    with pytest.raises(UsageError) as caught:
        parse_reference(text)
    assert cause in (caught.value.cause or "")
    assert f"`{text}`" in caught.value.title


@given(st.text(max_size=40))
def test_any_text_is_a_reference_or_a_usage_error(text):
    with suppress(UsageError):
        assert parse_reference(str(parse_reference(text))) == parse_reference(text)


@pytest.mark.parametrize(
    ("host", "registry"),
    [
        (ECR, EcrHost(account="123456789012", region="eu-west-1")),
        ("123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn", EcrHost(account="123456789012", region="cn-north-1")),
        (
            "123456789012.dkr.ecr-fips.us-east-1.amazonaws.com",
            EcrHost(account="123456789012", region="us-east-1", fips=True),
        ),
        ("123456789012.dkr-ecr.us-east-1.on.aws", EcrHost(account="123456789012", region="us-east-1")),
        ("public.ecr.aws", EcrHost(account="", region="us-east-1", public=True)),
    ],
)
def test_ecr_host_parts(host, registry):
    assert parse_reference(f"{host}/team/train:1").ecr == registry


@pytest.mark.parametrize(
    "host", ["quay.io", "12345.dkr.ecr.eu-west-1.amazonaws.com", f"{ECR}.example.com", f"x.{ECR}", f"{ECR}:443"]
)
def test_other_hosts_are_not_ecr(host):
    assert parse_reference(f"{host}/a").ecr is None


def test_ecr_host_of_an_account():
    assert format_ecr_host("123456789012", "eu-west-1") == ECR
    assert format_ecr_host("1" * 12, "cn-north-1") == "111111111111.dkr.ecr.cn-north-1.amazonaws.com.cn"
    assert format_ecr_host("1" * 12, "us-gov-west-1", fips=True) == "111111111111.dkr.ecr-fips.us-gov-west-1.amazonaws.com"


def test_tag_or_digest_of_a_reference():
    assert parse_reference("python").tag_or_digest == "latest"
    assert parse_reference("python").is_latest
    assert parse_reference(f"python:latest@{SHA}").tag_or_digest == SHA
    assert not parse_reference(f"python@{SHA}").is_latest
    assert parse_reference("python").host == "registry-1.docker.io"
    pinned = parse_reference("quay.io/a:1").with_digest(SHA)
    assert str(pinned) == f"quay.io/a:1@{SHA}"
    assert str(pinned.with_tag("2")) == "quay.io/a:2"
