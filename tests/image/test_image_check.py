"""Whether a job's image is there and runs on its nodes, asked of a real registry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kfjob.api.config import Settings
from kfjob.api.image_check import ImageInspector, check_image
from kfjob.api.place import Place
from kfjob.errors import NotFound, Refused
from kfjob.plan import Context, JobPlan, resolve
from kfjob.spec.job import JobSpec
from tests.image.images import FORMS, push_image
from tests.image.registries import RealRegistry, free_port, real_registry


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    with real_registry(tmp_path_factory.mktemp("registry")) as made:
        yield made


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KFJOB_REGISTRY_CERTS", str(tmp_path / "none"))


@dataclass
class Nodes:
    """A cluster, as far as it is asked about its nodes."""

    found: frozenset[str]
    asked: int = 0

    def architectures(self) -> frozenset[str]:
        self.asked += 1
        return self.found


def place(tmp_path: Path, *nodes: str, check: bool = True) -> Place:
    at = Place(Settings(state=tmp_path, image_check=check), "kubernetes", "default")
    at.__dict__["backend"] = Nodes(frozenset(nodes))
    return at


def plan(image: str, **spec: Any) -> JobPlan:
    made = JobSpec.model_validate({"name": "a", "image": image, "command": "c", **spec})
    return resolve(made, Context(backend="kubernetes", launch="1"))


@pytest.mark.parametrize("form", FORMS)
def test_facts_of_every_form(registry: RealRegistry, form: str):
    with registry.open() as opened:
        top = push_image(opened, "facts", form, form)
    found = ImageInspector().inspect(f"{registry.host}/facts:{form}")
    assert found.digest == top.digest
    assert found.platforms == (("linux/amd64", "linux/arm64/v8") if form.endswith("index") else ("linux/amd64",))
    assert found.labels == {"who": "the base"}
    assert found.size > 100
    assert found.runs_on("amd64")
    assert found.runs_on("arm64") == form.endswith("index")
    assert not found.runs_on("arm")
    assert ImageInspector().inspect(f"{registry.host}/facts@{top.digest}") == found


def test_an_image_that_is_not_there_is_refused_with_the_tag_that_is_near(registry: RealRegistry, tmp_path: Path):
    with registry.open() as opened:
        push_image(opened, "near", "v1.2", "oci")
    with pytest.raises(NotFound) as caught:
        check_image(place(tmp_path), plan(f"{registry.host}/near:v1.3"), notice=pytest.fail)
    assert caught.value.title == f"image `{registry.host}/near:v1.3` does not exist"
    assert caught.value.hint == f"did you mean `{registry.host}/near:v1.2`?"
    with pytest.raises(NotFound):
        check_image(place(tmp_path), plan(f"{registry.host}/nothing:v1@sha256:{'0' * 64}"), notice=pytest.fail)


@pytest.mark.parametrize(
    ("nodes", "spec", "taken"),
    [
        (["amd64"], {}, True),
        (["amd64", "arm64"], {}, True),
        ([], {}, True),  # nodes may not be listed: nobody knows
        (["arm64"], {}, False),
        (["arm64"], {"instance": "p4d.24xlarge"}, True),  # what the spec asks for counts, not what happens to be there
        (["amd64"], {"scheduling": {"node_selector": {"kubernetes.io/arch": "arm64"}}}, False),
    ],
)
def test_the_processor_of_the_nodes(registry: RealRegistry, tmp_path: Path, nodes, spec, taken):
    with registry.open() as opened:
        push_image(opened, "one", "v1", "oci")
        push_image(opened, "both", "v1", "oci-index")
    at = place(tmp_path, *nodes)
    check_image(at, plan(f"{registry.host}/both:v1", **spec), notice=pytest.fail)
    if taken:
        check_image(at, plan(f"{registry.host}/one:v1", **spec), notice=pytest.fail)
        return
    with pytest.raises(Refused, match="processor") as caught:
        check_image(at, plan(f"{registry.host}/one:v1", **spec), notice=pytest.fail)
    assert caught.value.cause == "it is there for linux/amd64, and the nodes are arm64"


def test_a_registry_that_cannot_be_reached_from_here_is_said_and_no_more(tmp_path: Path):
    said: list[str] = []
    image = f"127.0.0.1:{free_port()}/a:1"
    check_image(place(tmp_path), plan(image), notice=said.append)
    assert len(said) == 1
    assert said[0].startswith(f"image `{image}` was not checked, the cluster will say: ")


def test_a_registry_that_wants_a_login_is_said_and_no_more(tmp_path: Path):
    said: list[str] = []
    with real_registry(tmp_path, tls=True) as private:
        certs = tmp_path / "none" / private.host
        certs.mkdir(parents=True)
        assert private.ca
        (certs / "ca.crt").write_bytes(private.ca.read_bytes())
        check_image(place(tmp_path), plan(f"{private.host}/a:1"), notice=said.append)
    assert "authentication required" in said[0]


def test_nobody_is_asked_where_nobody_is_to_be_asked(tmp_path: Path):
    absent = f"127.0.0.1:{free_port()}/a:1"
    check_image(place(tmp_path, check=False), plan(absent), notice=pytest.fail)
    check_image(place(tmp_path), plan(absent, image_pull_policy="Never"), notice=pytest.fail)
    check_image(replace(place(tmp_path), name="local"), plan(absent), notice=pytest.fail)
