"""A command that needs a shell is an error that says how to write it; one that does not is accepted."""

from __future__ import annotations

import pytest
import yaml

from kfjob.base.errors import SpecError
from kfjob.source.spec_text import load_spec
from kfjob.spec.job import JobSpec


def find_problem(command: object):
    with pytest.raises(SpecError) as caught:
        JobSpec(name="train", image="a:1", command=command)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("cd src && torchrun train.py", "`cd` and `&&`"),
        ("cd /app; torchrun train.py", "`cd` and `;`"),
        ("torchrun train.py && echo done", "`&&`"),
        ("torchrun train.py&&echo done", "`&&`"),
        ("torchrun train.py || true", "`||`"),
        ("torchrun train.py | tee log", "`|`"),
        ("torchrun train.py|tee log", "`|`"),
        ("torchrun train.py ; echo done", "`;`"),
        ("torchrun train.py; echo done", "`;`"),
        ("torchrun train.py &", "`&`"),
        ("torchrun train.py > log", "`>`"),
        ("torchrun train.py >> log", "`>>`"),
        ("torchrun train.py >log.txt", "`>`"),
        ("torchrun train.py 2>&1", "`2>&1`"),
        ('torchrun train.py "$HOME/$A" | tee "log ${B}"', "`|`"),
        ("torchrun train.py 2>/dev/null", "`2>`"),
        ("torchrun train.py &> log", "`&>`"),
        ("torchrun train.py < data.txt", "`<`"),
        ("LR=1 torchrun train.py", "`LR=`"),
        ("NCCL_DEBUG=INFO A='b c' torchrun train.py", "`NCCL_DEBUG=`"),
        ("export A=1 && torchrun train.py", "`export` and `&&`"),
        ("source venv/bin/activate && python train.py", "`source` and `&&`"),
        ("torchrun train.py /data/*.jsonl", "`*`"),
        ("torchrun train.py ~/data", "`~`"),
        ("torchrun train.py --data ~/data", "`~`"),
        ("torchrun --nproc-per-node $(nvidia-smi -L | wc -l) train.py", "`$(` and `|`"),
        ('torchrun train.py --host "$(hostname -i)"', "`$(`"),
        ("torchrun train.py --host `hostname`", "a backquote"),
        ("if true; then torchrun train.py; fi", "`if` and `;`"),
        ("torchrun prepare.py\ntorchrun train.py", "several lines"),
        ("set -e\ntorchrun train.py", "`set` and several lines"),
        ("cd src\nA=1 python t.py $LR *.txt > log", "`cd`, `>`, `*` and several lines"),
        ("python a.py;python b.py", "`;`"),
        ("python a.py --lr 1;echo done", "`;`"),
        ("python a.py --amp |tee log", "`|`"),
        ("python a.py --amp >log", "`>`"),
        ("python a.py>log", "`>`"),
        ("python a.py&", "`&`"),
        ("python a.py --lr 1&", "`&`"),
        ("python a.py <<EOF", "`<<`"),
        ("python a.py # the baseline", "`#`"),
        ("(python a.py)", "`(`"),
        ("! python a.py", "`!`"),
        ("python a.py --epochs 3|tee log", "`|`"),
        ("python a.py --pattern a|tee log", "`|`"),
        ("python a.py --verbose|tee log", "`|`"),
        ("python a.py --q 'x'|cat", "`|`"),
        ("python a.py --verbose>log", "`>`"),
        ("python a.py --out x>log", "`>`"),
        ("python a.py --lr=1>log", "`>`"),
        ("python a.py& echo x", "`&`"),
        ("python a.py&python b.py", "`&`"),
        ("python a.py --files data/*.bin", "`*`"),
        ("python a.py --files *", "`*`"),
        ("let x=1", "`let`"),
        ("read x", "`read`"),
        ("declare -x A=1", "`declare`"),
        (["command", "python", "a.py"], "`command`"),
        (["cd", "src", "&&", "x", "|", "y"], "`cd`"),
        (["cd src && torchrun train.py"], "spaces in the name of the program"),
        (["cd", "src"], "`cd`"),
        (["LR=1", "torchrun"], "`LR=`"),
    ],
)
def test_command_that_needs_a_shell_is_an_error(command, part):
    problem = find_problem(command)
    assert problem.title == f"the command needs a shell for {part}, and runs without one"
    assert problem.path == "command"
    assert "command: [" in (problem.hint or "") or part == "`&`"


@pytest.mark.parametrize(
    "command",
    [
        "torchrun train.py --lr 1e-4 --name=a-b_c.d",
        "torchrun train.py --pattern '*.txt' --regex \"a|b\" 'x > y; z && w'",
        r"torchrun train.py a\|b \*.txt \~",
        "torchrun train.py --pattern 'a|b' --where 'x>1' --include=*.py --glob '*.txt'",
        "torchrun train.py --url 'http://h/?a=1&b=2'",
        "torchrun train.py model.name=llama optim.lr=2*1e-4 +trainer.max_steps=10 'data=[a,b]'",
        "torchrun train.py --set A=1 FOO=bar",
        "env A=1 torchrun train.py",
        "torchrun train.py --dir /data/~backup --ratio ~0.5",
        "torchrun train.py $(POD_NAME) --home $HOME",
        "accelerate launch train.py --prompt 'echo $(x)'",
        "torchrun train.py \\\n  --lr 1 \\\n  --steps 2",
        "torchrun train.py\n  --lr 1\n  --steps 2\n",
        ["bash", "-c", "cd src && torchrun train.py | tee log"],
        ["sh", "-ec", "set -x\ntorchrun train.py\n"],
        ["find", "/data", "-exec", "rm", "{}", ";"],
        ["torchrun", "train.py", "*.txt", "a > b"],
        ["torchrun", "train.py", "--separator", "|", "&&", ";"],
        "torchrun train.py --exclude=*.pt --files=data/?.txt --data=~/x",
        "torchrun train.py train[:10%] model.layers[0].lr=1 devices=[0,1] ~optimizer",
        "torchrun train.py s3://bucket/*.tar gs://b/[0-9].tar http://h/?a=1 why?",
        "torchrun train.py --color #fff",
        "torchrun train.py --files='data/*.bin' --code '$1' '{a,b}' --cost $$1 --end x$ --re ^a$ \"x$|y${a,b}\"",
        "torchrun train.py --scale 2*3 --filter model/[0-9] --top x?",
        "torchrun train.py +x={a:1,b:2} x={a,b} --set {a:1,b:2} s3://b/{0..3}.tar --layers [0,1] key=[1,2] --fmt {rank}",
        "bash -c 'cd src && torchrun train.py'",
    ],
)
def test_command_that_needs_no_shell_is_accepted(command):
    assert JobSpec(name="train", image="a:1", command=command).command


def test_continued_lines_become_one_command():
    spec = load_spec("name: train\nimage: a:1\ncommand: |\n  torchrun train.py \\\n    --lr 1\n    --steps 2\n").spec
    assert spec.command == ("torchrun", "train.py", "--lr", "1", "--steps", "2")


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("cd /app && torchrun train.py", "set `pod.working_dir` (an absolute path), or use `command: ["),
        ("A=1 B=x torchrun train.py", "set `env.A` in the spec, or use `command: ["),
        ("export A=1 B=2 && torchrun train.py", "set `env` in the spec, or use `command: ["),
        ("torchrun train.py data/*.txt", "write text in single quotes, or use `command: ["),
        ("if true; then torchrun train.py; fi", "use `command: ["),
    ],
)
def test_hint_offers_the_field_and_the_shell(command, hint):
    assert (find_problem(command).hint or "").startswith(hint)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("conda activate foo && python a.py", "`conda run --no-capture-output -n NAME` and the program"),
        ("micromamba activate foo\npython a.py", "`micromamba run -n NAME` and the program"),
    ],
)
def test_hint_for_conda_offers_no_shell(command, hint):
    text = find_problem(command).hint or ""
    assert text.endswith(hint)
    assert "`--python FOLDER`" in text
    assert "bash" not in text


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("python train.py &", "write it without `&`: kfjob runs the job in the background already"),
        ("nohup python train.py &", "write it without `&`"),
        (
            "nohup python train.py > log 2>&1 &",
            'use `command: ["bash", "-c", "python train.py > log 2>&1"]` without `&`',
        ),
        ("cd /app && python train.py&", "set `pod.working_dir` (an absolute path), or use"),
    ],
)
def test_hint_for_a_command_in_the_background_leaves_out_the_background(command, hint):
    shown = find_problem(command).hint or ""
    assert shown.startswith(hint)
    assert "nohup" not in shown
    assert "train.py &" not in shown


def offered_field(hint: str | None) -> str:
    return (hint or "").partition("use `")[2].removesuffix("`")


@pytest.mark.parametrize("command", ["python x | tee out", "python x|tee out", "A=1 python x | tee out"])
def test_offered_command_keeps_the_exit_code_of_a_pipe(command):
    line = offered_field(find_problem(command).hint)
    assert yaml.safe_load(line)["command"][2].startswith("set -eo pipefail; ")


@pytest.mark.parametrize("command", ["python a.py; echo done", "python a.py\necho done", "python a.py | tee log; echo done"])
def test_offered_command_fails_with_the_first_program(command):
    script = yaml.safe_load(offered_field(find_problem(command).hint))["command"][2]
    assert script == f"set -eo pipefail; {command}"


LONG = "torchrun train.py --name 'a b' " + " ".join(f"--option-{number} {number}" for number in range(50)) + ' && echo "done"'


@pytest.mark.parametrize(
    "command", ["cd src && torchrun train.py", "A=1 torchrun train.py", "a || b > 'c d'", LONG, "a b\nc 'd\"'"]
)
def test_offered_command_is_a_valid_field(command):
    line = offered_field(find_problem(command).hint)
    assert JobSpec(name="train", image="a:1", **yaml.safe_load(line)).command in (
        ("bash", "-c", command),
        ("bash", "-c", f"set -eo pipefail; {command}"),
    )


def test_open_quote_does_not_hide_the_need_of_a_shell():
    problem = find_problem("cd src && python train.py --name 'x")
    assert "cannot split the command into words" in problem.title
    assert problem.detail == "it also needs a shell for `cd` and `&&`"


def test_shell_syntax_is_reported_together_with_wrong_fields():
    with pytest.raises(SpecError) as caught:
        load_spec("name: T\nnodes: two\nlauncher: mpi\ncommand: cd x && python t.py | tee log\n")
    assert [problem.path for problem in caught.value.problems] == ["name", "nodes", "launcher", "command"]
    assert "`cd`, `&&` and `|`" in caught.value.problems[-1].title
