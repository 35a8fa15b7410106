"""Notifications about what the guard decides, sent by `apprise`: chats, mail, webhooks.

The addresses hold passwords and tokens. They come from one environment variable, and no log shows them, whether the
guard writes it or the library.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kfjob.backends.base import JobRef
from kfjob.guard.decision import Action, Decision
from kfjob.guard.records import MAX_MESSAGE

if TYPE_CHECKING:
    from apprise import Apprise

VARIABLE = "KFJOB_NOTIFY"
"""The environment variable with the addresses, URLs of apprise, separated by white space."""
INSTALL = '`pip install "kfjob[guard]"`'


class Notifier:
    """Sends each decision about a launch once to every address."""

    def __init__(self, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
        """`say` receives what the guard's log shows: a missing library, an invalid address, a notification that failed."""
        self._addresses = environ.get(VARIABLE, "").split()
        self._say = say
        self._sent: set[tuple[str, Action]] = set()
        self._threads: list[threading.Thread] = []
        if self._addresses and find_spec("apprise") is None:
            say(f"no notifications: {VARIABLE} is set, and the package `apprise` is missing; {INSTALL} installs it")
            self._addresses = []
        if self._addresses:
            self._start(self._check)

    def send(self, ref: JobRef, decision: Decision) -> None:
        """Send a decision from a thread. An attempt that repeats a decision about a launch sends nothing."""
        key = (ref.uid, decision.action)
        if self._addresses and key not in self._sent:
            self._sent.add(key)
            self._start(lambda: self._deliver(ref, decision))

    def join(self) -> None:
        """Wait until everything has been sent or has failed. apprise cannot be loaded any more while Python ends."""
        for thread in self._threads:
            thread.join()

    def _start(self, call: Callable[[], None]) -> None:
        """Run a call in a thread: it may take several seconds for each address."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(threading.Thread(target=call, name="kfjob-guard-notify", daemon=True))
        self._threads[-1].start()

    def _check(self) -> None:
        """Report the addresses that apprise does not understand, before the first notification is lost."""
        for number, address in enumerate(self._addresses, 1):
            if not _attempt(partial(_open, address)):
                self._say(f"{VARIABLE}: address {number} is invalid")

    def _deliver(self, ref: JobRef, decision: Decision) -> None:
        for number, address in enumerate(self._addresses, 1):
            if not _attempt(partial(_notify, address, ref, decision)):
                self._say(f"{ref.name}: the notification to address {number} of {VARIABLE} failed")


def _attempt(call: Callable[[], object]) -> bool:
    """Return whether a call of the library succeeds. Its error must not end the guard, and may quote an address."""
    try:
        return bool(call())
    except Exception:  # noqa: BLE001
        return False


def _notify(address: str, ref: JobRef, decision: Decision) -> object:
    from apprise import NotifyFormat, NotifyType

    return _open(address).notify(
        "\n".join([decision.reason, *decision.evidence])[:MAX_MESSAGE],
        f"{decision.action} of job {ref.name} in namespace {ref.namespace}",
        notify_type=NotifyType.WARNING if decision.action is Action.RELAUNCH else NotifyType.FAILURE,
        body_format=NotifyFormat.TEXT,
    )


def _open(address: str) -> Apprise:
    """Return apprise with one address; with none if the address is invalid."""
    from apprise import Apprise

    logging.getLogger("apprise").disabled = True  # its messages quote addresses
    warnings.filterwarnings("ignore", module="urllib3")  # a warning about a certificate that is not checked names the host
    opened = Apprise()
    opened.add(address)
    return opened
