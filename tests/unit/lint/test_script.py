"""What a job's script says about its processes decides on alarms, and is read from files of any kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfjob.api.job_script import read_script, read_shell_script
from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.base.capabilities import BackendName
from kfjob.lint.script import Script
from kfjob.plan import Context, resolve
from kfjob.spec.job import JobSpec
from tests.pytorchjobs import lint

CONTEXTS = {"local": Context(backend="local", launch="l"), "kubernetes": Context(backend="kubernetes", launch="l")}


def make_target(folder: Path, backend: BackendName) -> Target:
    return Target(Settings(state=folder / "state"), backend, "default")


def find_rules(text: str, command: str = "torchrun train.py", **fields: object) -> list[str]:
    spec = JobSpec(name="t", image="a:1", command=command, **{"nodes": 2, **fields})
    plan = resolve(spec, CONTEXTS["local"])
    return [problem.rule for problem in lint(spec, plan, script=Script("train.py", text))]


LONELY = [
    "import lightning as L\nL.Trainer(max_steps=1)",
    "import lightning\nlightning.Trainer(devices=2)",
    "from lightning import Trainer\nTrainer()",
    "import pytorch_lightning as pl\npl.Trainer(num_nodes=1)",
    "from pytorch_lightning import Trainer as T\nT(num_nodes=4)",
    "import lightning.pytorch as pl\npl.Trainer()",
    "from lightning.fabric import Fabric\nFabric(devices=1)",
]


@pytest.mark.parametrize("text", LONELY)
def test_lightning_without_the_number_of_nodes_is_an_error_on_several_nodes(text):
    assert find_rules(text) == ["lightning-nodes"]
    assert find_rules(text, nodes=1) == []


@pytest.mark.parametrize("number", ["9" * 4000, "0x" + "f" * 5000], ids=["decimal", "hexadecimal"])
def test_message_shows_no_number_with_many_digits(number):
    spec = JobSpec(name="t", image="a:1", command="torchrun train.py", nodes=2)
    script = Script("train.py", f"import lightning as L\nL.Trainer(num_nodes={number})")
    (problem,) = lint(spec, resolve(spec, CONTEXTS["local"]), script=script)
    assert problem.title == "`Trainer` in `train.py` (line 2) trains on another number of nodes, and the job has 2"


@pytest.mark.parametrize(
    "text",
    [
        "import lightning as L\nL.Trainer(num_nodes=2)",
        "import lightning as L\nL.Trainer(num_nodes=args.nodes)",
        "import lightning as L\nL.Trainer(**config)",
        "from transformers import Trainer\nimport lightning\nTrainer()",
        "import lightning as L\nL.LightningModule()",
        "import lightning as L\nL.Trainer(",
        "import lightning as L\nL.Trainer(fast_dev_run=True)\nL.Trainer(num_nodes=2)",
        "",
    ],
)
def test_lightning_with_another_number_of_nodes_is_accepted(text):
    assert find_rules(text) == []


def test_number_of_nodes_in_the_command_is_accepted():
    assert find_rules(LONELY[0], "torchrun train.py --trainer.num_nodes=2") == []


@pytest.mark.parametrize(
    "text",
    [
        "dist.init_process_group('nccl', init_method=f'tcp://{host}:1234')",
        "os.environ['MASTER_ADDR'] = os.environ['WORKER_0']",
        'os.environ.setdefault("MASTER_ADDR", find_master())',
        "ray.init(address=os.environ['RAY_ADDRESS'])",
        "ray.init(num_cpus=4, address='auto')",
        "ray.init('ray://head:10001')",
        "jax.distributed.initialize()",
        "dist.init_process_group(init_method='file:///shared/store', rank=rank, world_size=2)",
    ],
)
def test_script_that_connects_itself_is_accepted(text):
    assert find_rules(text, "python train.py") == []


@pytest.mark.parametrize(
    "text",
    [
        "print(1)",
        "dist.init_process_group()",
        "ray.init()",
        "ray.init(num_cpus=4)",
        "os.environ['MASTER_ADDR'] = 'localhost'\nmp.spawn(main, nprocs=2)",
        "dist.init_process_group(init_method='tcp://localhost:1')",
        'os.environ.setdefault("MASTER_ADDR", "127.0.0.1")',
    ],
)
def test_script_that_connects_only_its_own_machine_is_reported(text):
    assert find_rules(text, "python train.py") == ["unconnected-nodes"]


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ('set -e\ncd "$(dirname "$0")"\npython train.py --lr 1 "$@"\n', ["unconnected-nodes"]),
        ("torchrun --standalone train.py\n", ["unconnected-nodes"]),
        ("python prepare.py\n", []),
        ("python prepare.py\ntorchrun train.py\n", []),
        ("export MASTER_ADDR=$1\npython train.py\n", []),
    ],
)
def test_shell_script_that_starts_copies_is_a_warning(text: str, rules: list[str]):
    spec = JobSpec(name="t", image="a:1", command="bash run.sh", nodes=2)
    problems = lint(spec, resolve(spec, CONTEXTS["local"]), shell_script=Script("run.sh", text))
    found = [problem for problem in problems if problem.rule == "unconnected-nodes"]
    assert [problem.rule for problem in found] == rules
    assert all(problem.severity == "warning" and "in `run.sh` runs 2 copies" in problem.title for problem in found)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("bash run.sh --lr 1", "python train.py\n"),
        ("bash -eux run.sh", "python train.py\n"),
        ("./run.sh", "python train.py\n"),
        ("bash other.sh", ""),
        ("python run.sh", ""),
        ("bash -c 'run.sh'", ""),
    ],
)
def test_file_of_a_shell_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, text: str):
    (tmp_path / "run.sh").write_text("python train.py\n")
    monkeypatch.chdir(tmp_path)
    spec = JobSpec(name="t", image="a:1", command=command)
    for backend in ("local", "kubernetes"):
        script = read_shell_script(resolve(spec, CONTEXTS[backend]), make_target(tmp_path, backend))
        assert (script.text if script else "") == text


def find_severity(text: str | None, command: str) -> str:
    spec = JobSpec(name="t", image="a:1", command=command, nodes=2)
    script = None if text is None else Script(command.rsplit(maxsplit=1)[-1], text)
    (problem,) = [p for p in lint(spec, resolve(spec, CONTEXTS["local"]), script=script) if p.rule == "unconnected-nodes"]
    assert "`lint: {ignore: [unconnected-nodes]}`" in (problem.hint or "")
    return problem.severity


@pytest.mark.parametrize(
    "text",
    [
        "from torch import distributed as dist\ndist.init_process_group()",
        "from torch.nn.parallel import DistributedDataParallel as DDP",
        "torch.distributed.fsdp.fully_shard(model)",
        "from accelerate import Accelerator",
        "import deepspeed\ndeepspeed.initialize(model=model)",
        "from trl import SFTTrainer\nSFTTrainer(model).train()",
        "import transformers\ntransformers.Trainer(model).train()",
        "import lightning as L\nL.Trainer(num_nodes=2).fit(model)",
    ],
)
def test_copies_of_a_script_that_trains_with_others_are_an_error(text):
    assert find_severity(text, "python main.py") == "error"


@pytest.mark.parametrize(
    "text",
    [
        "print(1)",
        "# DistributedDataParallel and Trainer(model) are not used",
        "class Trainer: pass\nTrainer()",
        "def broken(:\n    init_process_group()",
        "import optuna\noptuna.create_study().optimize(objective)",
    ],
)
def test_copies_of_another_script_are_a_warning(text):
    assert find_severity(text, "python train.py") == "warning"


@pytest.mark.parametrize(
    ("command", "severity"),
    [
        ("python train.py", "error"),
        ("python -m recipes.pretrain", "error"),
        ("python src/Fine-Tune_llama.py", "error"),
        ("accelerate launch main.py", "error"),
        ("torchrun --standalone main.py", "error"),
        ("python preprocess.py", "warning"),
        ("python train/preprocess.py", "warning"),
        ("python constrain.py", "warning"),
        ("python -m dask.distributed.cli.dask_worker scheduler:8786", "warning"),
    ],
)
def test_launcher_or_name_decides_on_a_program_that_is_not_here(command, severity):
    assert find_severity(None, command) == severity


@pytest.mark.parametrize("text", ["mp.spawn(main, nprocs=4)", "import multiprocessing", LONELY[0]])
def test_script_that_starts_processes_may_have_several(text):
    assert find_rules("", "python train.py", nodes=1, processes_per_node=4) == ["unused-processes"]
    assert find_rules(text, "python train.py", nodes=1, processes_per_node=4) == []


@pytest.mark.parametrize("backend", ["local", "kubernetes"])
@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python train.py", True),
        (["bash", "-c", "export A=1\ntorchrun train.py"], True),
        ("uv run python train.py", True),
        ("python -m train", False),
        ("python missing.py", False),
        ("python folder.py", False),
        ("python large.py", False),
        (["python", "a" * 300 + ".py"], False),
        (["bash", "-c", "cd sub && python other.py"], True),
        (["bash", "-c", "cd sub && python train.py"], False),
        (["bash", "-c", "cd $X && python train.py"], False),
        ("uv run --directory sub python train.py", False),
    ],
)
def test_script_is_read_from_the_current_folder(backend, command, found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_bytes(b"# \xff\nprint(1)")
    Path("folder.py").mkdir()
    Path("sub").mkdir()
    Path("sub/other.py").write_text("print(1)")
    Path("large.py").write_bytes(b"#" * 2**21)
    spec = JobSpec(name="t", image="a:1", command=command)
    plan = resolve(spec, CONTEXTS[backend])
    assert (read_script(plan, make_target(tmp_path, backend)) is not None) == found


def test_script_of_an_image_is_not_read_here(tmp_path: Path):
    file = tmp_path / "train.py"
    file.write_text("print(1)")
    backends: dict[BackendName, bool] = {"local": True, "kubernetes": False}
    for backend, found in backends.items():
        plan = resolve(JobSpec(name="t", image="a:1", command=["python", str(file)]), CONTEXTS[backend])
        assert (read_script(plan, make_target(tmp_path, backend)) is not None) == found


def test_script_of_a_local_job_may_be_named_by_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("print(1)")
    plan = resolve(JobSpec(name="t", env={"CODE": "code"}, command="python $(CODE)/train.py"), CONTEXTS["local"])
    script = read_script(plan, make_target(tmp_path, "local"))
    assert script is not None
    assert script.text == "print(1)"


def test_script_in_a_volume_of_a_local_job_is_that_of_the_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    files = {"claim": tmp_path / "state/volumes/code/train.py", "host": tmp_path / "host/train.py"}
    for name, file in files.items():
        file.parent.mkdir(parents=True)
        file.write_text(name)
    Path("train.py").write_text("here")
    (tmp_path / "state").chmod(0o700)
    target = make_target(tmp_path, "local")
    kinds = {"claim": {"pvc": "code"}, "host": {"host_path": str(tmp_path / "host")}}
    for name, kind in kinds.items():
        volumes = [{"name": "code", "mount_path": "/code", **kind}]
        for fields in ({"command": "python train.py", "pod": {"working_dir": "/code"}}, {"command": "python /code/train.py"}):
            plan = resolve(JobSpec(name="t", image="a:1", volumes=volumes, **fields), CONTEXTS["local"])
            script = read_script(plan, target)
            assert script is not None
            assert script.text == name
