"""Arguments of the Python API that are of another type are errors in kfjob's own words."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kfjob
from kfjob.api.arguments import check_arguments
from kfjob.api.html_page import HtmlPage
from kfjob.api.jobs import attach
from kfjob.api.reader import LiveReader
from kfjob.api.run import Run
from kfjob.base.errors import KfjobError, NotFound, UsageError
from tests.unit.api import script


def list_functions() -> list[Any]:
    """Return every public function and method that takes arguments, with each of its parameters."""
    functions = [getattr(kfjob, name) for name in dir(kfjob)]
    functions = [function for function in functions if inspect.isfunction(function)]
    for owner in (Run, HtmlPage):
        functions += [method for name, method in inspect.getmembers(owner, inspect.isfunction) if name in vars(owner)]
    return [
        pytest.param(function, name, id=f"{function.__qualname__}-{name}")
        for function in functions
        if not function.__name__.startswith("_")
        for name in inspect.signature(function).parameters
        if name != "self"
    ]


@pytest.mark.parametrize(("function", "name"), list_functions())
def test_every_argument_of_every_public_function_is_checked(function: Callable[..., Any], name: str):
    parameters = inspect.signature(function).parameters
    with pytest.raises(UsageError) as caught:
        function(**({"self": None} if "self" in parameters else {}), **{name: object()})
    assert f"`{name}` is not " in caught.value.title
    assert caught.value.hint


WRONG: Any = None
"""A wrong argument; its type is hidden from the type checker."""
NUMBER: Any = 3
MAPPING: Any = {}


@pytest.fixture
def run(fake) -> Run:
    fake.play("train", *script.SUCCEEDED, spec=script.SPEC)
    return attach("train")


@pytest.mark.parametrize(
    ("call", "title"),
    [
        (lambda run: run.logs(pod=99), "`pod` is not text: `99`"),
        (lambda run: run.logs(tail=-1), "`tail` is not a whole number from 0 on: `-1`"),
        (lambda run: run.logs(tail="5"), "`tail` is not a whole number from 0 on: `'5'`"),
        (lambda run: run.logs(include=3), "`include` is not text: `3`"),
        (lambda run: run.logs(previous="yes"), "`previous` is not True or False: `'yes'`"),
        (lambda run: run.wait(timeout="x"), "`timeout` is not a number of seconds from 0 on: `'x'`"),
        (lambda run: run.wait(check=1), "`check` is not True or False: `1`"),
        (lambda run: run.stop(timeout=-1), "`timeout` is not a number of seconds from 0 on: `-1`"),
        (lambda run: run.masters(interval=None), "`interval` is not a number of seconds from 0 on: `NoneType`"),
        (lambda _: attach(WRONG), "`job` is not text: `NoneType`"),
        (lambda _: kfjob.submit(WRONG), "`spec` is not a `JobSpec`, a mapping, text or a path: `NoneType`"),
        (lambda _: kfjob.submit(NUMBER), "`spec` is not a `JobSpec`, a mapping, text or a path: `3`"),
        (lambda _: kfjob.attach("train", backend="slurm"), "`backend` is not `kubernetes` or `local`: `'slurm'`"),
        (lambda _: kfjob.list_jobs(settings=MAPPING), "`settings` is not `Settings`: `dict`"),
        (lambda _: kfjob.push_image(MAPPING), "`spec` is not an `ImageSpec`: `dict`"),
    ],
)
def test_message_names_the_argument_and_its_value(run, call, title):
    with pytest.raises(UsageError) as caught:
        call(run)
    assert caught.value.title == title
    assert caught.value.hint


@pytest.mark.parametrize("spec", ["name", "a\0b", ".", Path("/nonexistent/job.yaml")])
def test_text_that_names_no_spec_file_is_not_found(run, spec):
    with pytest.raises(NotFound, match="spec `"):
        kfjob.submit(spec)


def test_file_that_is_no_text_is_not_found(run, here):
    (here / "job.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(KfjobError):
        kfjob.submit("job.yaml")


def test_right_arguments_pass_and_the_signature_stays(run):
    assert [line.text for line in run.logs("train-worker-1", tail=1)]
    assert run.wait(timeout=60.5) == "Succeeded"
    assert list(inspect.signature(kfjob.attach).parameters) == ["job", "backend", "context", "namespace", "settings", "notify"]
    assert check_arguments(lambda: 3)() == 3
    assert isinstance(run._reader, LiveReader)


def test_error_in_planning_is_not_an_unreadable_file(tmp_path, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise ValueError("a bug inside planning")

    monkeypatch.setattr("kfjob.source.spec_text.load_spec", fail)
    file = tmp_path / "job.yaml"
    file.write_text("name: demo\n")
    with pytest.raises(ValueError, match="a bug inside planning"):
        kfjob.submit(file)
