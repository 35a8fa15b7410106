"""Structs keep their identifiers, enums and literals; their texts lose the secrets, also those that equal an ordinary word."""

from __future__ import annotations

from typing import Literal

import pytest
from msgspec import Struct, convert, to_builtins

from kfjob.base.common_types import Identifier
from kfjob.joblog.diagnose.diagnosis import Diagnosis, Issue, Verdict
from kfjob.joblog.diagnose.rule import Role, Severity
from kfjob.joblog.diagnose.warnings import DistinctWarning
from kfjob.joblog.events import JobChanged, JobPhase, KubernetesEvent, PodChanged, PodPhase
from kfjob.redaction import REDACTED, Redactor, remember_credential
from kfjob.redaction.structs import redact_struct

KEY = ["-----BEGIN RSA PRIVATE KEY-----", "MIIEogIBAAKCAQEA", "-----END RSA PRIVATE KEY-----"]
WORDS = [
    "Running",
    "Failed",
    "error",
    "cause",
    "wrong-nproc",
    "wrong",
    "train-worker-0",
    "train",
    "Worker",
    "FailedMount",
    "uid-of-a-pod",
]
ISSUE = Issue(
    rule="wrong-nproc",
    severity=Severity.ERROR,
    role=Role.CAUSE,
    title="a title",
    cause="why",
    remedy="",
    pod="train-worker-0",
    evidence=("seen: {}!",),
    pods=("train-worker-0",),
)
DIAGNOSIS = Diagnosis(
    headline="the job has ended: {}",
    verdict=Verdict.FAILED,
    first_cause=ISSUE,
    reports=(("train-worker-0", "done with {}."),),
    last_lines=(("train-worker-0", ("a {} b",)),),
)
POD = PodChanged(pod="train-worker-0", phase=PodPhase.RUNNING, uid="uid-of-a-pod", reason="Error", message="saw {}")
JOB = JobChanged(phase=JobPhase.FAILED, reason="BackoffLimitExceeded", message="saw {}")
EVENT = KubernetesEvent(kind="Pod", name="train-worker-0", reason="FailedMount", message="saw {}")
WARNING = DistinctWarning(text="saw {}", rule="wrong-nproc", pods={"train-worker-0"})


def fill(value: Struct, word: str) -> Struct:
    """Put a word in the texts of a struct."""

    def put(item: object) -> object:
        if isinstance(item, dict):
            return {key: put(inner) for key, inner in item.items()}
        if isinstance(item, list | tuple | set):
            return [put(inner) for inner in item]
        return item.replace("{}", word) if isinstance(item, str) else item

    return convert(put(to_builtins(value)), type(value))


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("kind", ["secret of the job", "credential of the process"])
@pytest.mark.parametrize("value", [DIAGNOSIS, POD, JOB, EVENT, WARNING], ids=lambda value: type(value).__name__)
def test_only_texts_are_redacted(value: Struct, word: str, kind: str):
    if kind == "credential of the process":
        remember_credential(word)
    redactor = Redactor([word] if kind == "secret of the job" else [])
    redacted = redact_struct(fill(value, word), redactor)
    assert redacted == fill(value, REDACTED)


def test_types_of_fields_decide():
    class Mixed(Struct):
        literal: Literal["ready", "gone"] | None
        either: str | None
        names_or_none: tuple[Identifier, ...] | None
        number: int | str
        names: dict[str, str]

    value = Mixed(literal="ready", either="ready", names_or_none=("ready",), number=5, names={"a": "ready", "password": "x"})
    expected = Mixed(
        literal="ready", either=REDACTED, names_or_none=("ready",), number=5, names={"a": REDACTED, "password": REDACTED}
    )
    assert redact_struct(value, Redactor(["ready"])) == expected


def test_key_in_several_lines_of_evidence_is_redacted():
    class Quote(Struct):
        lines: tuple[str, ...]

    assert redact_struct(Quote(("first", *KEY, "last")), Redactor()).lines == ("first", *[REDACTED] * len(KEY), "last")


def test_sentence_in_the_place_of_an_identifier_is_redacted():
    class Report(Struct):
        reason: Identifier

    assert redact_struct(Report("sent password=hunter2"), Redactor()).reason == f"sent password={REDACTED}"


@pytest.mark.parametrize("text", ["wrong-nproc", "on_wrong", "wrong.example", "a.wrong", "wrongly", "/x/wrong-0"])
def test_word_is_kept_in_longer_names(text: str):
    remember_credential("wrong")
    assert Redactor(["wrong"]).text(text) == text


@pytest.mark.parametrize(
    "text", ["wrong", "it is wrong.", "(wrong)", "wrong - no", "a=wrong", "me:wrong@h", "- wrong", "-wrong", "x/wrong"]
)
def test_word_is_redacted_where_it_stands_alone(text: str):
    remember_credential("wrong")
    assert "wrong" not in Redactor(["wrong"]).text(text)
