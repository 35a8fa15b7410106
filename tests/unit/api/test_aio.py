"""`kfjob.aio` has the functions of `kfjob.api.jobs` and the methods of `Run`, as coroutines with the same signatures."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kfjob
from kfjob import aio
from kfjob.api import jobs
from kfjob.api import run as sync

AT_ONCE = {"render"}
"""Functions that wait for nothing."""
FUNCTIONS = {name: value for name, value in vars(jobs).items() if getattr(value, "__module__", "") == jobs.__name__}
FUNCTIONS = {name: value for name, value in FUNCTIONS.items() if not name.startswith("_") and name not in AT_ONCE}
MEMBERS = {name: value for name, value in vars(sync.Run).items() if not name.startswith("_")}
METHODS = {name: value for name, value in MEMBERS.items() if inspect.isfunction(value)}


class FakeReader:
    """A job that answers two calls."""

    def snapshot(self) -> Any:
        return "the snapshot"

    def events(self) -> list[str]:
        raise KeyError("events")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_a_coroutine_with_its_signature(name):
    coroutine = getattr(aio, name, None)
    assert coroutine is not None, f"add `{name} = _coroutine(jobs.{name})` to kfjob/aio.py"
    assert inspect.iscoroutinefunction(coroutine)
    assert inspect.signature(coroutine) == inspect.signature(FUNCTIONS[name])
    assert getattr(kfjob, name, None) is FUNCTIONS[name], f"add `{name}` to kfjob/__init__.pyi"


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_run_is_a_coroutine_or_an_iterator_with_its_signature(name):
    is_iterator = METHODS[name].__annotations__["return"].startswith("Iterator[")
    method = vars(aio.Run).get(name)
    assert method is not None, f"add `{name} = {'_iterator' if is_iterator else '_method'}(sync.Run.{name})` to kfjob/aio.py"
    assert inspect.iscoroutinefunction(method) != is_iterator
    assert inspect.signature(method) == inspect.signature(METHODS[name])


def test_run_has_every_attribute():
    assert set(MEMBERS) - set(METHODS) <= {name for name, value in vars(aio.Run).items() if isinstance(value, property)}


def test_a_returned_run_is_that_of_the_coroutines(monkeypatch):
    monkeypatch.setattr(jobs, "open_job", lambda *_args, **_options: FakeReader())
    run = asyncio.run(aio.attach("job"))
    assert type(run) is aio.Run
    snapshot: Any = asyncio.run(run.snapshot())
    assert snapshot == "the snapshot"
    with pytest.raises(KeyError, match="events"):
        asyncio.run(run.events())


def test_an_iterator_yields_in_the_event_loop(monkeypatch):
    monkeypatch.setattr(sync, "watch_masters", lambda _reader, *, interval: iter((interval, "b")))

    reader: Any = FakeReader()

    async def collect(items: AsyncIterator[object]) -> list[object]:
        return [item async for item in items]

    assert asyncio.run(collect(aio.Run(sync.Run(reader)).masters(interval=3.0))) == [3.0, "b"]
