"""A host without an address: the diagnosis names it, and one chain of exceptions is one occurrence."""

from __future__ import annotations

import pytest

from kfjob.joblog.events import JobChanged, JobPhase, LogLine
from tests.unit.diagnose.cases import examine, get_cause

HOST = "files.example.org"
LIBRARY = '  File "/v/lib/python3.12/site-packages/urllib3/connection.py", line 198, in _new_conn\n    sock = connect()'
PROGRAM = '  File "/w/train.py", line 9, in <module>\n    import data\n  File "/w/data.py", line 31, in <module>\n    get(URL)'
NEXT = "\nDuring handling of the above exception, another exception occurred:\n"
RESOLVE = f"Failed to resolve '{HOST}' ([Errno -2] Name or service not known)"
POOL = f"HTTPSConnectionPool(host='{HOST}', port=443): "
CAUSED = f'Max retries exceeded with url: /v (Caused by NameResolutionError("{POOL}{RESOLVE}"))'
CHAIN = f"""Traceback (most recent call last):
{LIBRARY}
socket.gaierror: [Errno -2] Name or service not known
{NEXT}
Traceback (most recent call last):
{LIBRARY}
urllib3.exceptions.NameResolutionError: {POOL}{RESOLVE}
{NEXT}
Traceback (most recent call last):
{LIBRARY}
urllib3.exceptions.MaxRetryError: {POOL}{CAUSED}
{NEXT}
Traceback (most recent call last):
{PROGRAM}
{LIBRARY}
requests.exceptions.ConnectionError: {POOL}{CAUSED}"""


def find_issue(text: str, pods: int = 1):
    events = [LogLine(pod=f"a-worker-{pod}", text=line) for pod in range(pods) for line in text.splitlines()]
    diagnosis, _ = examine([*events, JobChanged(phase=JobPhase.FAILED)], local=True)
    issue = get_cause(diagnosis)
    assert issue.rule == "name-unresolvable"
    return issue


def test_chain_is_one_occurrence_in_the_frame_of_the_program():
    issue = find_issue(CHAIN)
    assert issue.title == f"a host name has no address: {HOST}"
    assert (issue.count, issue.place) == (1, "/w/data.py:31")
    assert "get(URL)" in "\n".join(issue.evidence)
    assert "container" not in issue.cause + issue.remedy


def test_chains_of_two_pods_are_two_occurrences():
    assert find_issue(CHAIN, pods=2).count == 2


def test_chains_of_two_processes_whose_lines_mix_are_two_occurrences():
    mixed = "\n".join(f"[rank{rank}]:{line}" for line in CHAIN.splitlines() for rank in (0, 1) if line)
    assert find_issue(mixed).count == 2


@pytest.mark.parametrize("text", [
    "HTTPSConnectionPool(host='{}', port=443): Max retries exceeded (Caused by X('[Errno -2] Name or service not known'))",
    "aiohttp.client_exceptions.ClientConnectorDNSError: Cannot connect to host {}:443 ssl:default [Name or service not known]",
    "redis.exceptions.ConnectionError: Error -2 connecting to {}:6379. Name or service not known.",
    "ssh: Could not resolve hostname {}: Name or service not known",
    "wget: unable to resolve host address '{}'",
    "curl: (6) Could not resolve host: {}",
    'psycopg2.OperationalError: could not translate host name "{}" to address: Temporary failure in name resolution',
    "dial tcp: lookup {} on 10.0.0.10:53: no such host",
])  # fmt: skip
def test_message_names_the_host(text: str):
    assert find_issue(text.format(HOST)).title == f"a host name has no address: {HOST}"


def test_message_without_a_host_stands_in_the_title():
    issue = find_issue("urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>")
    assert issue.title == "a host name has no address: Temporary failure in name resolution"
