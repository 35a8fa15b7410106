"""The notice about a missing kubeconfig: only where a job is started or looked for."""

import pytest

NOTICE = "no kubeconfig found"
SPEC = "name: train\nimage: a:1\nnodes: 1\ncommand: python3 -c 'print(1)'\n"
COMMANDS = (
    "render job.yaml", "validate job.yaml", "explain job.yaml", "submit job.yaml --dry-run client", "preflight job.yaml",
    "schema", "instances p4d", "init other.yaml --yes --name a --image a:1",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_that_start_and_find_no_job_are_silent(here, kfjob, command):
    (here / "job.yaml").write_text(SPEC)
    kfjob(*command.split())
    assert NOTICE not in kfjob.err


@pytest.fixture(autouse=True)
def _no_kubeconfig(here, monkeypatch):
    monkeypatch.setattr("kfjob.backends.kubeconfig.find_current_context", lambda *_: None)


def test_a_search_for_jobs_says_where_it_looks(here, kfjob):
    kfjob("list")
    assert NOTICE in kfjob.err
