"""`--pin`: only the image changes."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kfjob.base.errors import SpecError
from kfjob.source.pin import pin_image

NEW = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/fsdp:1@sha256:" + "a" * 64

CASES = {
    "plain": ("name: a\nimage: old:1  # why\nnodes: 2\n", "name: a\nimage: {}  # why\nnodes: 2\n"),
    "quoted": ("image: 'old:1' # why\nname: a\n", "image: {} # why\nname: a\n"),
    "a variable": ("name: a\nimage: ${IMAGE_URI}\n", "name: a\nimage: {}\n"),
    "no value": ("name: a\nimage:\nnodes: 2\n", "name: a\nimage: {}\nnodes: 2\n"),
    "null": ("name: a\nimage: ~\n", "name: a\nimage: {}\n"),
    "folded": ("name: a\nimage: >-\n  old\n  # not a comment\nnodes: 2\n", "name: a\nimage: {}\nnodes: 2\n"),
    "anchored": ("image: &i old\nname: a\n", "image: &i {}\nname: a\n"),
    "an alias": ("name: &n a\nimage: *n\nnodes: 1\n", "name: &n a\nimage: {}\nnodes: 1\n"),
    "windows": ("name: a\r\nimage: old\r\nnodes: 2\r\n", "name: a\r\nimage: {}\r\nnodes: 2\r\n"),
    "no line end": ("name: a\nimage: old", "name: a\nimage: {}"),
    "letters": ("# größer 🚀\nname: a\nimage: old # 🚀\n", "# größer 🚀\nname: a\nimage: {} # 🚀\n"),
    "added": ("# first\nname: a # mine\n\n# then\nnodes: 2\n", "# first\nname: a # mine\nimage: {}\n\n# then\nnodes: 2\n"),
    "added at the end": ("nodes: 2\nname: a", "nodes: 2\nname: a\nimage: {}\n"),
    "an inner image": (
        "name: a\npod: {init_containers: [{image: b}]}\n",
        "name: a\nimage: {}\npod: {init_containers: [{image: b}]}\n",
    ),
    "added to JSON": ('{"name": "a"}\n', '{"image": "{}", "name": "a"}\n'),
    "JSON": ('{"name": "a", "image": "old", "nodes": 1}', '{"name": "a", "image": "{}", "nodes": 1}'),
    "document start": ("---\nname: a\nimage: old\n", "---\nname: a\nimage: {}\n"),
}


@pytest.mark.parametrize("case", CASES)
def test_only_the_image_changes(case: str):
    before, after = CASES[case]
    assert pin_image(before, NEW) == after.replace("{}", NEW, 1)


def test_pinning_is_idempotent():
    pinned = pin_image("name: a\n", NEW)
    assert pin_image(pinned, NEW) == pinned


@pytest.mark.parametrize("text", ["- a\n", "", "name: [\n", "image: &i old\nname: *i\n"])
def test_text_that_cannot_be_pinned_is_an_error(text: str):
    with pytest.raises(SpecError):
        pin_image(text, NEW)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@given(st.dictionaries(st.sampled_from(["name", "image", "nodes", "env", "command"]), texts | st.integers()))
def test_image_of_any_mapping_can_be_pinned(data: dict[str, object]):
    text = yaml.safe_dump(data, allow_unicode=True, sort_keys=False)
    if not data:
        return
    assert yaml.safe_load(pin_image(text, NEW)) == {**yaml.safe_load(text), "image": NEW}
