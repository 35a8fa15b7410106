"""Templates with a value for every name, compared with GNU envsubst and PyYAML."""

from __future__ import annotations

import subprocess
from collections.abc import Collection

import pytest
import yaml

from kfjob.base.common_types import JsonObject
from kfjob.source.template.fill import render

VALUES = {
    "JOB": "llama-7b",
    "IMAGE": "registry.test:5000/team/train:v1.2",
    "NODES": "4",
    "GPUS": "8",
    "TYPE": "p5.48xlarge",
    "URI": "s3://bucket/data?x=1&y=2",
    "LR": "0.0003",
    "SPACED": "two  words",
    "QUOTED": 'it\'s "so"',
    "UTF": "größe ✓",
    "EMPTY": "",
}
SCRIPT = r"""
#!/bin/bash
set -euo pipefail
echo "$JOB on ${TYPE}" '$IMAGE' # $NODES
pids=($(pgrep -f $JOB | sed -e 's/ *$//' -e "s/^${JOB}$/x/"))
awk '{print $1, $NF}' < ${URI} | grep -E '^[^$]+$' | tee "$@" $* $# $? $! $- $0 $9
case "${GPUS}" in 8) n=$((GPUS * 2));; *) n=${#pids[@]};; esac
cat <<EOF > /tmp/$JOB.cfg
lr: ${LR}
job: "${JOB}_${TYPE}-$GPUS.$NODES/$LR"
cost: 5$ and $ 7 and $
EOF
"""
HEAD = "apiVersion: v1\nkind: Thing\nmetadata: {name: thing}\n"
TEMPLATES = {
    "scalars": HEAD
    + """
a: ${NODES}
b: "${NODES}"
c: '$NODES'
d: n$NODES
e: $LR
f: ${JOB}-$NODES
g: ["$IMAGE", "${GPUS}", {k: "$TYPE"}]
h: ${EMPTY}x
i: "${EMPTY}"
""",
    "comments and documents": f"""# $JOB ${{UNCLOSED
---
{HEAD}a: 1 # ${{NODES}}
---
{HEAD}b: $GPUS
--- # $TYPE
{HEAD}c: [$JOB, "${{JOB}}"]
""",
    "anchors": HEAD
    + """
base: &base {image: "$IMAGE", count: $NODES}
copy: *base
merged: {<<: *base, count: 1}
""",
    "windows": HEAD.replace("\n", "\r\n") + "a: $JOB\r\nb: |\r\n  one $NODES\r\n  two ${GPUS}\r\nc: '${TYPE}'\r\n",
    "keys": HEAD + "labels:\n  $JOB: a\n  team/${TYPE}: $GPUS\n",
    "block scalars": HEAD
    + 'a: |\n  $JOB\n\n  ${URI}\nb: >-\n  folded $LR\n  ${TYPE}\nc: "x\n  $GPUS\n  y"\nd: |+\n  "${SPACED}"\n\n',
    "neighbours": HEAD + "a: ${JOB}${TYPE}$GPUS${LR}\nb: $JOB-$TYPE.$GPUS/$LR:$NODES,$JOB\nc: x${JOB}y$TYPE\nd: '{$JOB}'\n",
    "not names": HEAD
    + "a: '$1 $? $@ $# $ $- 5$ $(date) ${} ${1} {$} $[1] %{$'\nb: \"^a.*$\"\nc: 'x$'\nd: ['$', '$$', '$ $']\n",
    "other braces": HEAD + 'a: "{{ .Values.job }} {{$JOB}} {% if x %}"\nb: "#{JOB} %JOB% @JOB@ <JOB> [[JOB]]"\n',
    "values": HEAD + "a: '$URI'\nb: $URI\nc: \"$UTF\"\nd: |\n  $QUOTED\n  $SPACED\ne: '$SPACED'\n",
    "script": "kind: ConfigMap\napiVersion: v1\nmetadata: {name: s}\ndata:\n  run.sh: |"
    + SCRIPT.replace("\n", "\n    ")
    + "\n",
    "pods": """
kind: Pod
apiVersion: v1
metadata: {name: p, annotations: {cost: "$GPUS"}}
spec:
  nodeSelector: {node.kubernetes.io/instance-type: "${TYPE}"}
  containers:
  - name: pytorch
    image: ${IMAGE}
    args: ["--lr=$LR", "$(RANK)", "--job", "${JOB}"]
    env:
    - {name: URI, value: "$URI"}
    - {name: NODES, value: "${NODES}"}
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    resources: {limits: {nvidia.com/gpu: ${GPUS}, vpc.amazonaws.com/efa: $NODES}}
  - name: shell
    image: $IMAGE
    command: ["bash", "-c", "train --nodes=$NODES --job \\"${JOB}\\" --rank $(hostname) $((1+1)) || exit $?"]
""",
}


def substitute(text: str, only: Collection[str]) -> list[JsonObject]:
    """Return the objects of the text that GNU envsubst writes."""
    command = ["/usr/bin/envsubst", " ".join(f"${name}" for name in only)]
    result = subprocess.run(command, input=text.encode(), capture_output=True, check=True, env=VALUES | {"NF": "9"})
    return [document for document in yaml.safe_load_all(result.stdout) if document is not None]


def empty_notices(template: str) -> list[str]:
    """Return the notice about a text that is only a name without a text, if the template has one."""
    return ["`${EMPTY}`: the value is empty, and so is the whole text"] if '"${EMPTY}"' in TEMPLATES[template] else []


@pytest.mark.parametrize("template", TEMPLATES)
def test_template_equals_the_output_of_gnu_envsubst(template: str):
    rendered = render(TEMPLATES[template], values=VALUES)
    assert list(rendered.objects) == substitute(TEMPLATES[template], VALUES)
    left = ["left for the pod: `$NF` (no value)"] if "$NF" in TEMPLATES[template] else []
    assert [notice.splitlines()[0] for notice in rendered.notices] == left + empty_notices(template)


@pytest.mark.parametrize("others", [("LR", "URI"), ("NF", "UTF", "EMPTY")], ids="-".join)
@pytest.mark.parametrize("template", TEMPLATES)
def test_template_with_only_equals_the_output_of_gnu_envsubst(template: str, others: tuple[str, ...]):
    """A program reads the names that stay; kfjob refuses those that none reads, such as the name in an image."""
    only = ({"NF"} | VALUES.keys()) - {*others}
    rendered = render(TEMPLATES[template], values={"NF": "9"} | VALUES, only=only)
    assert list(rendered.objects) == substitute(TEMPLATES[template], only)
    notices = empty_notices(template) if "EMPTY" in only else []
    assert [notice.splitlines()[0] for notice in rendered.notices] == notices


@pytest.mark.parametrize("text", ["\\$JOB", "$$JOB", "$${JOB}"])
def test_difference_from_gnu_envsubst_is_told(text: str):
    """A shell reads these texts as escapes, and GNU envsubst has none."""
    template = TEMPLATES["script"].replace("$NODES", text)
    rendered = render(template, values=VALUES)
    assert list(rendered.objects) != substitute(template, VALUES)
    assert [notice for notice in rendered.notices if f"`{text}`" in notice]
