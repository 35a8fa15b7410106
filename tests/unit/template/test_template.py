"""Manifest templates: which names are replaced, and that no value changes the structure."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfjob.base.errors import SpecError
from kfjob.source.template.fill import render

HEAD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"


def data(template: str, keep: tuple[str, ...] = (), **values: str):
    """Return the `data` of an object whose template follows HEAD."""
    (config_map,) = render(HEAD + template, values=values, keep=keep).objects
    return config_map["data"]


def render_error(template: str, **values: str) -> SpecError:
    with pytest.raises(SpecError) as error:
        render(template, values=values, file="t.yaml")
    return error.value


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("${N}", 8),
        ("'${N}'", "8"),
        ("$N", 8),
        ("${OTHER:-4}", 4),
        ("${EMPTY:-4}", 4),
        ("'${OTHER:-}'", ""),
        ("${OTHER:-}", ""),
        ("${OTHER:-$N}/x", "8/x"),
        ("${OTHER-d}", "d"),
        ("${REGISTRY}fsdp:${TAG:-pytorch2.2}", "1.dkr.ecr.eu-west-1.amazonaws.com/fsdp:pytorch2.2"),
        ("{a: ${N}, b: [${TEXT}, $N]}", {"a": 8, "b": ["a b", 8]}),
        ("${YES}", True),
        ("${NULL}", None),
        ("'${ACCOUNT}'", "012345678901"),
        ("${FLOAT}", 0.5),
        (
            "{defaultMode: ${MODE}, text: '${MODE}', x${MODE}: ${OTHER:-0x10}}",
            {"defaultMode": 493, "text": "0755", "x0755": 16},
        ),
        ("{a: ${EMPTY}}", {"a": ""}),
        ("{${MERGE}: {a: 1}}", {"<<": {"a": 1}}),
    ],
)
def test_names_with_a_value_are_replaced(template, value):
    values = {"N": "8", "TEXT": "a b", "EMPTY": "", "REGISTRY": "1.dkr.ecr.eu-west-1.amazonaws.com/", "YES": "yes"}
    values |= {"NULL": "null", "ACCOUNT": "012345678901", "FLOAT": "0.5", "MODE": "0755", "MERGE": "<<"}
    (config_map,) = render(HEAD + f"data: {template}\n", values=values).objects
    assert config_map["data"] == value


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --node-rank=$RANK --rdzv-endpoint=${MASTER_ADDR}:${MASTER_PORT:-29500}",
        "$HOSTNAME ${HOSTNAME} $PET_NNODES ${PET_NNODES}",
        "x=$(nproc) y=`date` z=$((1+1))",
        r"\$N \${N} \\$N",
        "$$ $1 ${1} ${N:1} ${N%x} ${#N} ${N[0]} $ $- $?",
        "$(N)",
        "$MY_OWN ${KEPT} $KEPT",
    ],
)
def test_names_for_the_pod_stay(line):
    assert data(f"data: |-\n  {line}\n", keep=("KEPT",), N="8", KEPT="no") == line


def test_names_of_every_document_are_replaced():
    head = HEAD.replace("{name: x}", '{name: "${N}-a"}')
    bodies = (
        'data: {who: "$N", other: x}',
        "spec: {a: {b: x}, ports: [{port: 80}]}",
        "spec: {a: [b], r: {q: {s: 1Gi}}}",
        "a: {a: s}",
    )
    documents = [f"{head}{body}\n" for body in bodies] * 10
    names = [item["metadata"]["name"] for item in render("---\n".join(documents), values={"N": "8"}).objects]
    assert names == ["8-a"] * 40


def test_names_that_stay_are_listed_once_with_the_reason():
    template = HEAD + "data: $NUM_NODE $RANK $KEPT $N $NUM_NODE # $COMMENT\n"
    left, kept = render(template, values={"N": "1"}, keep=["KEPT"]).notices
    assert left.splitlines() == [
        "left for the pod: `$NUM_NODE` (no value); `$RANK` (set by torchrun, the operator or the shell)",
        "  --> 4:7 (ConfigMap `x`, data)",
    ]
    assert kept.splitlines() == [
        "`$KEPT` stays in the text because of `--keep`: no shell reads it there, so the pod gets it as it is",
        "  --> 4:23 (ConfigMap `x`, data)",
    ]


def test_misspelt_name_that_stays_has_a_suggestion():
    (notice,) = render(HEAD + "data: $NUM_NODE $X\n", values={"NUM_NODES": "1", "OTHER": "2"}).notices
    assert notice.splitlines()[0] == "left for the pod: `$NUM_NODE` (no value; did you mean `$NUM_NODES`?); `$X` (no value)"


def test_misspelt_name_that_is_an_error_has_a_suggestion():
    problems = render_error(HEAD + "spec: {replicas: $NUM_NODE}\n", NUM_NODES="1").problems
    assert [problem.title for problem in problems] == ["`$NUM_NODE` has no value; did you mean `$NUM_NODES`?"]


PLACES = """apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: scripts}
  data:
    run.sh: |
      train
      echo $A $$N
- apiVersion: v1
  kind: Pod
  metadata: {name: p}
  spec:
    initContainers:
    - {name: prepare, image: a, command: [sh, -c, "get $A $B"]}
    containers:
    - name: main
      image: "a:$$N"
      command: [sh, -c, "run $$N $${M}"]
"""


def test_notices_name_object_container_field_and_line():
    result = render(PLACES, values={"N": "1"}, file="t.yaml")
    assert "\n".join(result.notices).splitlines() == [
        "left for the pod: `$A`, `$B` (no value)",
        "  --> t.yaml:10:12 (ConfigMap `scripts`, data.run.sh): `$A`",
        "  --> t.yaml:16:56 (Pod `p`, container `prepare`, command[2]): `$A`, `$B`",
        "`$$N`, `$${M}`: the pod gets one `$` and the name; GNU envsubst writes `$` and the value",
        "  --> t.yaml:10:15 (ConfigMap `scripts`, data.run.sh): `$$N`",
        "  --> t.yaml:20:30 (Pod `p`, container `main`, command[2]): `$$N`, `$${M}`",
        "`$$N`: it stays as it is; GNU envsubst writes `$` and the value",
        "  --> t.yaml:19:17 (Pod `p`, container `main`, image)",
    ]
    config, pod = result.objects[0]["items"]
    assert config["data"]["run.sh"].endswith("echo $A $N\n")
    assert pod["spec"]["containers"][0]["command"][2] == "run $$N $${M}"  # the kubelet writes one `$`


def test_escaped_commands_are_named_where_the_text_differs_from_gnu_envsubst():
    """In the command of a pod the kubelet makes one `$` of two, whoever renders the template."""
    script = PLACES.replace("echo $A $$N", "echo $$(hostname) $$ $$((1+1))").replace("$$N $${M}", "$$(hostname)")
    assert "\n".join(render(script, values={"A": "1", "B": "2"}, file="t.yaml").notices).splitlines() == [
        "`$$(`: the pod gets one `$`; GNU envsubst leaves both",
        "  --> t.yaml:10:12 (ConfigMap `scripts`, data.run.sh)",
        "`$$N`: it stays as it is; GNU envsubst writes `$` and the value",
        "  --> t.yaml:19:17 (Pod `p`, container `main`, image)",
    ]


def test_escaped_names_beside_the_allowed_ones_are_no_difference():
    result = render(PLACES, values={"A": "1", "N": "1", "M": "1"}, only=["A", "M"], file="t.yaml")
    assert "\n".join(result.notices).splitlines() == [
        "`$${M}`: the pod gets one `$` and the name; GNU envsubst writes `$` and the value",
        "  --> t.yaml:20:34 (Pod `p`, container `main`, command[2])",
    ]
    assert result.objects[0]["items"][0]["data"]["run.sh"].endswith("echo 1 $$N\n")


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("[${A}]", "--a, --b"),
        ("{cpu: ${A}}", "a,b"),
        ("[x, [-${A}-]]", "a]b"),
        ("${A}", "[a]"),
        ("${A}", "{a: 1}"),
        ("x${A}", "a # b"),
        ("x${A}", "a: b"),
        ("${A}", "a\nb"),
    ],
)
def test_value_that_envsubst_would_make_structure_of_has_a_notice(template, value):
    (notice,) = render(HEAD + f"data: {template}\n", values={"A": value}, file="t.yaml").notices
    assert notice.startswith("`${A}`: a value never makes structure, as it can with envsubst")
    assert "t.yaml:4:" in notice


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("['${A}', \"${A}\"]", "--a, --b"),
        ("${A}", "a, b"),
        ("x${A}", "[a]"),
        ("[${A}]", "a b"),
        ("|\n  ${A}", "a: [1, 2] # b\nc"),
        ("[${B:-a, b}]", ""),
        ("${A}", "https://a/b#c"),
    ],
)
def test_value_that_is_one_text_for_envsubst_too_has_no_notice(template, value):
    assert render(HEAD + f"data: {template}\n", values={"A": value}).notices == ()


def test_notice_names_at_most_eight_fields():
    template = HEAD + "data:\n" + "".join(f"  k{index}: x $A\n" for index in range(10))
    (notice,) = render(template, values={}).notices
    assert notice.count("-->") == 8
    assert notice.endswith("\n  and 2 more fields")


POD = """apiVersion: v1
kind: Pod
metadata: {name: x, annotations: {note: $NOTE}}
spec:
  containers:
  - name: a
    image: a:1
    command: [COMMAND]
    args: [--nodes=$ARGS, $RANK]
    env: [{name: A, value: --x=$VARIABLE}]
    resources: {limits: {nvidia.com/gpu: $GPU_PER_NODE, vpc.amazonaws.com/efa: $EFA_PER_NODE}}
"""


@pytest.mark.parametrize(
    ("command", "missing", "left"),
    [
        ("torchrun, --nnodes=$NUM_NODES", ["NUM_NODES", "ARGS", "GPU_PER_NODE", "EFA_PER_NODE"], ("NOTE", "VARIABLE")),
        ("/bin/bash, -c, run $NUM_NODES", ["ARGS", "GPU_PER_NODE", "EFA_PER_NODE"], ("NOTE", "NUM_NODES", "VARIABLE")),
    ],
)
def test_unbraced_name_that_no_program_replaces_is_missing_like_a_braced_one(command, missing, left):
    """Kubernetes replaces `$(NAME)` only, so the pod would get the text `$NUM_NODES` itself."""
    template = POD.replace("COMMAND", command)
    titles = [problem.title for problem in render_error(template).problems]
    assert titles == [f"`${name}` has no value" for name in missing]
    (notice,) = render(template, values=dict.fromkeys(missing, "8")).notices
    assert f"left for the pod: {', '.join(f'`${name}`' for name in left)} (no value)" in notice
    assert render(template, values={}, keep=missing).objects  # `--keep` leaves them


@pytest.mark.parametrize(
    "place", ["spec: {replicas: $E}", "spec: {image: '${E}'}", "spec: {nodeSelector: {type: ${E}}}", "spec: {image: '${D:-}'}"]
)
def test_field_that_needs_a_value_cannot_be_empty(place):
    (problem,) = render_error(HEAD + place, E="").problems
    assert problem.title.endswith("needs one")
    assert (problem.line, problem.column) == (4, place.index("$") + 1)


@pytest.mark.parametrize("form", ["${X:0:1}", "${X:-a{}}", "${X//a/b}", "${X^^}", "${X:+y}"])
@pytest.mark.parametrize("only", [None, ["X"]])
def test_given_name_in_a_form_that_only_a_shell_computes_is_noted(form, only):
    text = HEAD + f"spec: {{containers: [{{name: a, command: [bash, -c, 'run ${{X}} {form}']}}]}}\n"
    rendered = render(text, values={"X": "1"}, only=only)
    assert rendered.objects[0]["spec"]["containers"][0]["command"][2] == f"run 1 {form}"
    assert f"left for the pod: `{form}` (kfjob does not compute this form, so your value is not used)" in rendered.notices[0]
    assert f"--> 4:{text.splitlines()[3].index(form) + 1}" in rendered.notices[0]


@pytest.mark.parametrize("script", ["X=2; run ${X:0:1}", "run \\${X:0:1}", "run ${Y:0:1}"])
def test_form_of_a_name_that_the_script_sets_has_no_notice(script):
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"run.sh": script}}
    assert render(json.dumps(document), values={"X": "1"}).notices == ()


def test_empty_value_is_a_value_in_a_text():
    text = HEAD + "spec: {tolerations: [{value: '${E}'}], image: ${E}a, env: [{value: ${E}}], args: ['${E}']}\ndata: {a: $E}\n"
    (rendered,) = render(text, values={"E": ""}).objects
    spec = {"tolerations": [{"value": ""}], "image": "a", "env": [{"value": ""}], "args": [""]}
    assert (rendered["spec"], rendered["data"]) == (spec, {"a": ""})


def test_error_lists_every_name_without_a_value():
    template = HEAD + "data:\n  a: ${ONE} ${TWO}\n  # b: ${COMMENTED}\n  c: ${EMPTY}\n  d: x${ONE}\n  ${KEY}: 1\n"
    hint = (
        "hint: set it in an env file, with `--var {0}=…` (`--var {0}=` for an empty one), or export it and use `--env`; "
        "`--keep {0}` leaves it to the pod"
    )
    assert render_error(template, EMPTY="").lines() == [
        *("error: `${ONE}` has no value", "  --> t.yaml:5:6", "  also at 8:7", hint.format("ONE"), ""),
        *("error: `${TWO}` has no value", "  --> t.yaml:5:13", hint.format("TWO"), ""),
        *("error: `${KEY}` has no value", "  --> t.yaml:9:3", hint.format("KEY")),
    ]


@pytest.mark.parametrize(
    ("template", "position", "message"),
    [
        (HEAD + "data: ${A:-${B}}\n", "t.yaml:4:7", "a default that contains another reference"),
        (HEAD + "data: [1\n", "t.yaml:5", "invalid YAML"),
        (HEAD + "{{- if .Values.x }}\ndata: {}\n{{- end }}\n", "t.yaml:4", "this is a template of Helm"),
        (HEAD + "data: {${A}: 1, a: 2}\n", "t.yaml:4", "duplicate key `a`"),
        (HEAD + "data: &x [*x]\n", "t.yaml:4", "an alias contains itself"),
        (HEAD + "---\n- 1\n", "t.yaml:5", "not a Kubernetes object"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {}\n", "t.yaml:1", "has no `metadata.name`"),
        (HEAD + "data: " + "[" * 3000, "t.yaml:4:106", "the YAML is nested too deeply"),
    ],
)
def test_errors_have_a_position(template, position, message):
    error = str(render_error(template, A="a"))
    assert f"--> {position}" in error
    assert message in error


def test_aliases_cannot_fill_the_memory():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert "too many values" in str(render_error("\n".join(lines)))


def test_yaml_has_the_types_of_kubectl():
    template = "data: {a: 2026-01-01, b: 12:30:45, c: on, d: ~, e: 1e3, f: &x {k: v}, g: *x, 1: y}\n"
    assert data(template) == {
        "a": "2026-01-01",
        "b": "12:30:45",
        "c": True,
        "d": None,
        "e": 1000,
        "f": {"k": "v"},
        "g": {"k": "v"},
        "1": True,
    }


EVERYWHERE = (
    "data:\n  plain: a${V}b\n  whole: ${V}\n  single: 'a ${V} b'\n  double: \"a ${V} b\"\n  flow: [1, ${V}, {k: $V}]\n"
    "  block: |\n    a $V\n    b ${V}\n  folded: >-\n    a ${V}\n    b\n  default: ${OTHER:-x$V}\n  ${V}key: 1\n"
)


def shape(value):
    if isinstance(value, dict):
        return [shape(item) for item in value.values()]
    return [shape(item) for item in value] if isinstance(value, list) else None


@given(
    st.text(min_size=1)
    | st.sampled_from(["a: b", "x # y", "'", '"', "]", "}", "\n- z", "&a", "*a", "!!python/x", "---\n", "${V}"])
)
def test_values_do_not_change_the_structure(value):
    expected = data(EVERYWHERE, V="word")
    result = data(EVERYWHERE, V=value)
    assert shape(result) == shape(expected)
    assert result["double"] == f"a {value} b"
    assert result["plain"] == f"a{value}b"
    assert result["block"] == f"a {value}\nb {value}\n"
    assert result["default"] == f"x{value}"
    assert result["whole"] == value or isinstance(result["whole"], int | float | bool | None)
    assert list(result)[-1] == f"{value}key"


CONTAINER = """apiVersion: v1
kind: Pod
metadata: {name: x}
spec:
  containers:
  - command: [bash, -c, "SCRIPT"]
    env:
    - {name: BATCH, value: "64"}
    - {name: NODES, value: "$NODES"}
    - {name: SECRET, valueFrom: {}}
    - {name: OTHER, value: "${OUTER:-1}"}
"""


def render_script(script: str, only: tuple[str, ...] | None = None, **values: str) -> tuple[str, str]:
    """Return the command's script, and the notices."""
    template = CONTAINER.replace("SCRIPT", script.replace("\n", "\\n").replace('"', '\\"'))
    rendered = render(template, values={"NODES": "4"} | values, only=only)
    return rendered.objects[0]["spec"]["containers"][0]["command"][2], " ".join(rendered.notices)


@pytest.mark.parametrize(
    ("script", "values", "result", "reason"),
    [
        ("run --n=${NPROC:-1}", {}, "run --n=${NPROC:-1}", "`${NPROC:-1}` (the shell takes the default)"),
        ("run --n=${NPROC:-1}", {"NPROC": "2"}, "run --n=2", ""),
        ("run ${BATCH:-8}", {}, "run ${BATCH:-8}", "`${BATCH:-8}` (defined in the pod)"),
        ("run ${BATCH:-8}", {"BATCH": "9"}, "run ${BATCH:-8}", "another value than yours; `--only` replaces it"),
        ("run $BATCH", {"BATCH": "64"}, "run 64", ""),
        ("run $NODES", {}, "run 4", ""),
        ("run ${SECRET}", {}, "run ${SECRET}", "`${SECRET}` (defined in the pod)"),
        ("DIR=/x/${ID}\nls ${DIR}", {"ID": "7"}, "DIR=/x/7\nls ${DIR}", "`${DIR}` (defined in the pod)"),
        ("N=${N}\nls $N", {"N": "7"}, "N=7\nls $N", "`$N` (defined in the pod with another value"),
        ('N="${N:-1}" run $N', {}, 'N="${N:-1}" run $N', "`${N:-1}`, `$N` (defined in the pod)"),
        ("for i in 1; do read -r a b; done; x ${i} ${a} ${b}", {}, None, "`${i}`, `${a}`, `${b}` (defined in the pod)"),
        (': "${DEF:=1}"; x ${DEF}', {}, None, "`${DEF}` (defined in the pod)"),
        ("a $RANK $(hostname) $$RANK", {}, None, "`$RANK` (nothing sets it without a Master; `--var` replaces it)"),
    ],
)
def test_name_that_the_pod_defines_stays_in_shell_text(script, values, result, reason):
    rendered, notices = render_script(script, **values)
    assert rendered == (script if result is None else result)
    assert reason in notices


def test_forgotten_name_in_shell_text_is_an_error():
    with pytest.raises(SpecError, match=r"`\${TOKEN}` has no value"):
        render_script("login ${TOKEN}")


def test_variable_that_is_filled_with_itself_needs_a_value():
    """A container that defines the name has its own variable, which is no value for the entry that sets it."""
    variables = '[{name: HF_TOKEN, value: "${HF_TOKEN}"}, {name: OTHER, value: "x"}]'
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c, env: {variables}}}]}}\n"
    error = render_error(pod)
    assert [problem.title for problem in error.problems] == ["`${HF_TOKEN}` has no value"]
    assert render(pod, values={"HF_TOKEN": "t"}).objects[0]["spec"]["containers"][0]["env"][0]["value"] == "t"


def test_only_replaces_its_names_and_no_others():
    script = "a ${BATCH:-8} $NODES ${NPROC:-1} $TOKEN ${TOKEN:-d}"
    assert (
        render_script(script, only=("BATCH", "OTHER", "NODES"), BATCH="9", NPROC="2")[0]
        == "a 9 4 ${NPROC:-1} $TOKEN ${TOKEN:-d}"
    )
    with pytest.raises(SpecError, match=r"`\$N` stays, and no program reads it"):
        render(HEAD + "spec: {replicas: $N}\n", values={"N": "1"}, only=["M"])


@pytest.mark.parametrize(
    ("key", "text", "result"),
    [
        ("run.sh", "X=1; a $${X} $$X $$(date) $$ ${X} ${N:-2} ${UNSET:-d}", "X=1; a ${X} $X $(date) $$ ${X} 8 ${UNSET:-d}"),
        ("conf.yaml", "lr: ${UNSET:-1e-4} $N $$N", "lr: 1e-4 8 $N"),
        ("entry", "#!/usr/bin/env bash\necho ${UNSET:-d}", "#!/usr/bin/env bash\necho ${UNSET:-d}"),
        ("entry", "#!/usr/bin/env python\nx = '${UNSET:-d}'", "#!/usr/bin/env python\nx = 'd'"),
    ],
)
def test_script_of_a_config_map_is_shell_text(key, text, result):
    indented = text.replace("\n", "\n    ")
    assert data(f"data:\n  {key}: |-\n    {indented}\n", N="8") == {key: result}


PROBES = """apiVersion: v1
kind: Pod
metadata: {name: x}
spec:
  containers:
  - command: [sh, -c, "$PORT"]
    env: [{name: PORT, value: "8080"}]
    readinessProbe: {exec: {command: [sh, -c, "a $PORT ${OPT:-x} $$PORT"]}}
    livenessProbe: {exec: {command: [curl, "x:$PORT"]}}
    startupProbe: {httpGet: {path: "/${PATH_:-x}"}}
    lifecycle:
      preStop: {exec: {command: [/bin/sh, -c, "a $PORT ${OPT:-x} $UNSET $$PORT"]}}
      postStart: {exec: {command: [touch, "${OPT:-x}"]}}
"""


def test_shell_of_a_probe_or_hook_replaces_what_its_container_defines():
    (pod,) = render(PROBES, values={"PORT": "9"}).objects
    (container,) = pod["spec"]["containers"]
    assert container["command"][2] == "$PORT"
    assert container["readinessProbe"]["exec"]["command"][2] == "a $PORT ${OPT:-x} $$PORT"
    assert container["livenessProbe"]["exec"]["command"] == ["curl", "x:9"]
    assert container["startupProbe"]["httpGet"]["path"] == "/x"
    assert container["lifecycle"]["preStop"]["exec"]["command"][2] == "a $PORT ${OPT:-x} $UNSET $PORT"
    assert container["lifecycle"]["postStart"]["exec"]["command"] == ["touch", "x"]


def test_name_that_no_program_of_a_hook_replaces_is_missing():
    error = render_error(PROBES.replace("[touch,", "[touch, $UNSET,"), PORT="9")
    assert [problem.title for problem in error.problems] == ["`$UNSET` has no value"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("$RANK${TAG}.log", "${RANK}_v2.log"), ("$RANK${EMPTY}_x", "${RANK}_x"), ("$RANK$EMPTY-x$RANK", "$RANK-x$RANK")],
)
def test_a_name_that_stays_keeps_its_end_before_a_value(text, expected):
    job = (
        f"kind: Pod\napiVersion: v1\nmetadata: {{name: a}}\nspec: {{containers: [{{name: a, command: [sh, -c, '{text}']}}]}}\n"
    )
    rendered = render(job, values={"TAG": "_v2", "EMPTY": ""})
    assert rendered.objects[0]["spec"]["containers"][0]["command"][2] == expected
