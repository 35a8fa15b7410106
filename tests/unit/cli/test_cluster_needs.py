"""What a job has only on this machine is reported for a cluster: before a submit in one list, and by validate and explain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kfjob.api.target import Target

LOCAL = "name: mine\nnodes: 2\ncommand: torchrun train.py --config configs/a.yaml --out_dir runs/a\n"
PARTS = ["image", "command", "command", "resources"]


@pytest.fixture(autouse=True)
def program(here: Path) -> Path:
    (here / "train.py").write_text("print(1)")
    (here / "configs").mkdir()
    (here / "configs" / "a.yaml").touch()
    return here / "train.py"


def find_problems(kfjob, here: Path, text: str, *options: str) -> list[tuple[str, str]]:
    """Return the severity and the message of each problem of a spec on Kubernetes."""
    (here / "job.yaml").write_text(text)
    kfjob("validate", "job.yaml", "--backend", "kubernetes", "-o", "json", *options)
    return [(problem["severity"], problem["message"]) for problem in json.loads(kfjob.out)["problems"]]


def test_submit_of_a_local_spec_asks_for_all_that_is_missing_before_it_reaches_a_cluster(kfjob, here, monkeypatch):
    def refuse(_target: Target) -> None:
        raise AssertionError("a cluster was opened")

    monkeypatch.setattr(Target, "_open_cluster", refuse)
    (here / "job.yaml").write_text(LOCAL)
    assert kfjob("submit", "job.yaml", "--backend", "kubernetes") == 2
    assert kfjob.err.count("\n  --> ") == 4
    assert "error: `image` is missing" in kfjob.err
    assert "warning: checkpoint folder `runs/a` is in each pod's own file system" in kfjob.err
    assert "warning: `train.py`, `configs/a.yaml` are in this folder, and the image must have them" in kfjob.err
    assert "warning: the pods request no GPU, no CPU and no memory" in kfjob.err
    assert kfjob("submit", "job.yaml", "--backend", "kubernetes", "--code", ".") == 2
    assert "in this folder" not in kfjob.err


def test_submit_warns_of_a_script_that_the_code_lacks(kfjob, here):
    (here / "job.yaml").write_text("name: mine\ncommand: torchrun trian.py\n")
    assert kfjob("submit", "job.yaml", "--backend", "kubernetes", "--code", ".") == 2
    assert "warning: script `trian.py` is not in `.`, the folder of `--code`, so the image must have it" in kfjob.err
    assert "hint: did you mean `train.py`?" in kfjob.err
    (here / "job.yaml").write_text("name: mine\ncommand: torchrun train.py\n")
    assert kfjob("submit", "job.yaml", "--backend", "kubernetes", "--code", ".") == 2
    assert "the folder of `--code`" not in kfjob.err


@pytest.mark.parametrize("command", [("submit",), ("submit", "--dry-run", "client"), ("validate",)])
def test_commands_agree_on_what_a_job_with_an_image_may_lack(kfjob, here, monkeypatch, command):
    monkeypatch.setenv("KUBECONFIG", str(here / "absent"))
    (here / "job.yaml").write_text("name: mine\nimage: team/train:1\ncommand: torchrun train.py\n")
    kfjob(*command, "job.yaml", "--backend", "kubernetes")
    assert "note: the job has no volume: what it writes is deleted with its pods" in kfjob.err
    assert "note: `train.py` is in this folder, and the image must have it" in kfjob.err


@pytest.mark.parametrize(
    ("code", "is_lost"),
    [
        ("torch.save(m, '/workspace/ckpt/a.pt')", True),
        ("out = '/results'", True),
        ("torch.save(m, '/data/ckpt/a.pt')", False),
        ("open('/etc/models.json')", False),
        ("get('/api/v1/users')", False),
        ("torch.save(m, 'ckpt/a.pt')", False),
        ("syntax error '/ckpt'", False),
    ],
)
def test_a_path_in_the_script_where_no_volume_is(kfjob, here, code, is_lost):
    (here / "train.py").write_text(f"import torch\n{code}\n")
    text = "name: mine\nimage: team/train:1\ncommand: torchrun train.py\nvolumes: [{name: d, mount_path: /data, pvc: d}]\n"
    found = [message for severity, message in find_problems(kfjob, here, text) if "is in no volume" in message]
    assert len(found) == is_lost
    assert all(
        "` in `train.py` is in no volume: what the job writes there is deleted with its pods" in message for message in found
    )


def test_the_last_item_for_a_local_spec_is_the_missing_cluster(kfjob, here, monkeypatch):
    (here / "job.yaml").write_text(LOCAL)
    monkeypatch.setenv("KUBECONFIG", str(here / "absent"))
    assert kfjob("submit", "job.yaml", "--backend", "kubernetes") == 2
    last = kfjob.err.strip().splitlines()[-3:]
    assert last[0] == "warning: no cluster is set up: no kubeconfig names one"
    assert last[2].startswith("hint: set `KUBECONFIG`")
    (here / "absent").write_text("{current-context: a, contexts: [{name: a, context: {cluster: a}}]}")
    assert kfjob("submit", "job.yaml", "--backend", "kubernetes") == 2
    assert "no cluster is set up" not in kfjob.err


def test_a_spec_without_an_output_option_is_asked_for_a_volume(kfjob, here):
    (here / "job.yaml").write_text("name: mine\ncommand: torchrun train.py\n")
    kfjob("submit", "job.yaml", "--backend", "kubernetes")
    assert "warning: the job has no volume: what it writes is deleted with its pods" in kfjob.err


COMPLETE = "name: mine\nimage: a:1\nresources: {gpus: 1}\nvolumes: [{name: w, mount_path: /work, pvc: w}]\n"


def test_complete_spec_has_only_a_note_on_code_that_the_image_may_have(kfjob, here):
    problems = find_problems(kfjob, here, f"{COMPLETE}command: torchrun train.py --out_dir /work/a\n")
    assert problems == [("note", "`train.py` is in this folder, and the image must have it")]
    assert find_problems(kfjob, here, f"{COMPLETE}command: torchrun /opt/train.py\n") == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("command: torchrun -m pkg.train", "`pkg/train.py` is in this folder, and the image must have it"),
        ("command: ['bash', '-c', 'cd . && torchrun train.py']", "`train.py` is in this folder, and the image must have it"),
        (
            "command: torchrun /x.py --model_name_or_path pkg --input_dir=data",
            "`pkg`, `data` are in this folder, and the image",
        ),
        ("command: [bash, -c, 'echo a > b; torchrun absent.py']", "script `absent.py` is not in this folder"),
        ("command: torchrun absent.py", "script `absent.py` is not in this folder, so the image must have it"),
        ("command: torchrun /x.py --data {here}/data", "`{here}/data` is on this machine, and no volume brings it"),
        ("command: torchrun /x.py --data=../{name}/data", "`../{name}/data` is on this machine, and no volume brings it"),
        ("command: torchrun /x.py\nenv: {{DATA: '{here}/data'}}", "`{here}/data` is on this machine, and no volume brings it"),
        ("command: '{here}/venv/bin/python /x.py'", "`{here}/venv/bin/python` is a program of this machine"),
        ("command: [bash, -c, 'exec {here}/venv/bin/python /x.py']", "`{here}/venv/bin/python` is a program of this machine"),
        ("train: {{model: tiny-llama, data: '{here}/data', max_steps: 1}}", "`{here}/data` is on this machine"),
    ],
)
def test_what_exists_only_on_this_machine_is_reported(kfjob, here, fields, message):
    for folder in ("data", "pkg", "venv/bin"):
        (here / folder).mkdir(parents=True)
    (here / "pkg" / "train.py").touch()
    (here / "venv" / "bin" / "python").touch()
    text = COMPLETE + fields.format(here=here, name=here.name) + "\n"
    wanted = message.format(here=here, name=here.name)
    assert [text for _, text in find_problems(kfjob, here, text) if text.startswith(wanted)]


@pytest.mark.parametrize(
    "command",
    [
        "torchrun /x.py --shell /bin/sh --out_dir /work/a",
        "torchrun /x.py --data /work/data --name train --split a.b",
        "torchrun /x.py --data /absent/data --model org/name",
        "/usr/bin/python3 /x.py",
    ],
)
def test_what_images_and_volumes_have_is_not_reported(kfjob, here, command):
    assert find_problems(kfjob, here, f"{COMPLETE}command: {command}\n") == []


@pytest.mark.parametrize(
    "script",
    [
        "echo 'export A=1' >> {home}/.bashrc && . {home}/.bashrc && torchrun /x.py",
        "echo 'export A=1' | tee -a {home}/.bashrc; torchrun /x.py",
        'cat > "$folder/made.py" && torchrun "$folder/made.py"',
        "cat > made.py <<'END'\nprint('a')\nEND\ntorchrun made.py",
        "git clone https://example.com/org/code && cd code && torchrun made.py",
    ],
)
def test_files_that_the_shell_text_writes_are_not_reported(kfjob, here, script):
    (here / ".bashrc").touch()
    text = json.dumps(["bash", "-c", script.format(home=here)])
    assert find_problems(kfjob, here, f"{COMPLETE}command: {text}\n") == []


def test_folders_that_the_program_writes_need_not_be_in_the_image(kfjob, here):
    for name in ("runs", "train"):
        (here / name).mkdir()
    command = "torchrun /x.py --out_dir /work/a --log_dir runs --cache-dir runs --split train --data_dir ."
    assert find_problems(kfjob, here, f"{COMPLETE}command: {command}\n") == []


def test_host_path_of_this_machine_is_reported(kfjob, here):
    fields = "command: torchrun /x.py\nimage: a:1\nname: mine\nresources: {gpus: 1}\n"
    volume = "volumes: [{{name: w, mount_path: /work, host_path: {}}}]\n"
    (problem,) = find_problems(kfjob, here, fields + volume.format(here))
    assert problem == ("warning", f"volume `w` is `{here}` of each node, and not of this machine")
    assert find_problems(kfjob, here, fields + volume.format("/mnt/nvme")) == []


def test_explain_reports_what_the_pods_lack(kfjob, here):
    (here / "job.yaml").write_text(f"{COMPLETE}command: torchrun train.py\n")
    assert kfjob("explain", "job.yaml", "--backend", "kubernetes") == 0
    assert "note: `train.py` is in this folder, and the image must have it" in kfjob.err
    assert kfjob("explain", "job.yaml", "--backend", "local", "--set", "resources.gpus=0") == 0
    assert kfjob.err == ""


def test_what_only_the_master_lacks_is_reported_at_its_field(kfjob, here):
    (here / "head.py").touch()
    (here / "data").mkdir()
    master = f"master: {{command: torchrun head.py --data {here}/data, resources: {{}}, volumes: []}}\n"
    text = f"{COMPLETE}nodes: 2\nrendezvous: static\ncommand: torchrun /work/x.py --out_dir /work/a\n{master}"
    (here / "job.yaml").write_text(text)
    kfjob("validate", "job.yaml", "--backend", "kubernetes", "-o", "json")
    found = {problem["message"]: problem["field"] for problem in json.loads(kfjob.out)["problems"]}
    assert found["`head.py` is in this folder, and the image must have it"] == "master.command"
    assert found[f"`{here}/data` is on this machine, and no volume brings it to the pods"] == "master.command"
    assert found["the pods request no GPU, no CPU and no memory"] == "master.resources"
    assert found["the Master has no volume: what it writes is deleted with its pod"] == "master.volumes"


def test_what_master_and_workers_lack_is_reported_once(kfjob, here):
    text = f"{COMPLETE}nodes: 2\nrendezvous: static\ncommand: torchrun train.py --out_dir /work/a\nmaster: {{image: 'b:1'}}\n"
    messages = [message for _, message in find_problems(kfjob, here, text)]
    assert messages.count("`train.py` is in this folder, and the image must have it") == 1
