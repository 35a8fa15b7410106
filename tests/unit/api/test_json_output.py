"""JSON for other programs: Lists that kubectl takes, and times in RFC 3339."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kfjob.cli.formatting import format_json, format_rfc3339
from kfjob.joblog import events
from kfjob.joblog.lines.timestamps import parse_rfc3339
from tests.unit.api import script

NANOSECONDS = 1_795_000_000_000_000_001
GOLDENS = Path(__file__).parents[2] / "golden" / "output"


def test_times_are_rfc_3339_with_all_digits():
    text = format_json({"time": NANOSECONDS, "pods": [{"created": NANOSECONDS, "restarts": 3}], "eta": 7})
    times = json.loads(text)
    assert parse_rfc3339(times["time"]) == parse_rfc3339(times["pods"][0]["created"]) == NANOSECONDS
    assert times["pods"][0]["restarts"] == 3
    assert times["eta"] == 7


def test_time_fields_of_all_models_are_converted():
    """A whole number is a time if its name or the beginning of its comment says so."""
    folder = Path(events.__file__).parent
    names = set()
    internal = {"first", "last", "last_line", "after", "joining_since"}  # no command prints these
    for path in folder.rglob("*.py"):
        for name, comment in re.findall(r"^ {4}(\w+): int[^#\n]*(?:# *(.*))?$", path.read_text(), re.MULTILINE):
            if re.search(r"(^|_)(time|created|started|ended)$", name) or comment.startswith(("time of", "when")):
                names.add(name)
    assert names >= {"time", "created", "started", "last_ended"}
    for name in names - internal:
        assert json.loads(format_json({name: NANOSECONDS})) == {name: format_rfc3339(NANOSECONDS)}


@pytest.mark.parametrize("golden", sorted(GOLDENS.glob("*.txt")), ids=lambda path: path.stem)
def test_no_output_has_a_time_as_a_number(golden):
    assert not any(len(word.strip(",}]")) >= 18 and word.strip(",}]").isdigit() for word in golden.read_text().split())


def test_rendered_json_is_a_list_for_kubectl(kfjob, here):
    (here / "job.yaml").write_text("name: train\nimage: a:1\ncommand: torchrun train.py\nrendezvous: etcd\n")
    assert kfjob("render", "job.yaml", "-o", "json") == 0
    value = json.loads(kfjob.out)
    assert (value["apiVersion"], value["kind"]) == ("v1", "List")
    assert [item["kind"] for item in value["items"]] == ["PyTorchJob", "Service", "Pod"]


@pytest.mark.parametrize("name", ["json", "yaml", "html"])
def test_report_takes_a_file_not_a_format(fake, kfjob, here, name):
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    assert kfjob("report", "train", "-o", name) == 2
    assert f"takes a file, not the format `{name}`" in kfjob.err
    assert not (here / name).exists()
    assert kfjob("report", "train", "-o", f"./{name}") == 0
    assert (here / name).exists()
