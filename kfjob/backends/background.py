"""A question that is asked while something else is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


def begun(ask: Callable[[], _T]) -> Future[_T]:
    """What `ask` will answer. Unlike a pool's, its thread does not keep a process that was interrupted from ending."""
    answer: Future[_T] = Future()

    def answering() -> None:
        try:
            answer.set_result(ask())
        except BaseException as err:  # noqa: BLE001 - it is raised where the answer is awaited
            answer.set_exception(err)

    threading.Thread(target=answering, daemon=True).start()
    return answer
