"""Whole documents in samples, and conversations of which only the answers are learnt."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec
from kfjob.trainer.data.blocks import open_samples
from kfjob.trainer.data.chat import ChatEncoder, within
from kfjob.trainer.data.documents import Document
from kfjob.trainer.data.packing import IGNORE, best_fit, joined, pieces
from kfjob.trainer.data.sources import open_data
from kfjob.trainer.data.tokenizer import open_tokenizer

CHATML = (
    "{{ bos_token }}{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKED = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}A:{% generation %}{{ message['content'] }};"
    "{% endgeneration %}{% else %}Q:{{ message['content'] }};{% endif %}{% endfor %}"
)
TALK = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "what is 1 + 1?"},
    {"role": "assistant", "content": "it is 2"},
    {"role": "user", "content": "and é, 😀?"},
    {"role": "assistant", "content": " a letter, a face 😀"},
]


@pytest.fixture
def encoder(text_folder, tmp_path):
    """An encoder for a template; the tokenizer knows the marks of ChatML as tokens."""

    def made(template):
        tokenizer = tokenizers.Tokenizer.from_file(str(text_folder / "tokenizer" / "tokenizer.json"))
        tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        config = {"bos_token": {"content": "<|im_start|>"}, "eos_token": "<|im_end|>", "chat_template": template}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        return ChatEncoder(open_tokenizer(tmp_path)), tokenizer

    return made


def learnt(made, record):
    """(all of the text, what of it is learnt, the end of each run marked by |)."""
    encoder, tokenizer = made
    document = encoder.encode(encoder.pick(record))
    runs, edges = [], np.flatnonzero(np.diff([0, *document.learnt, 0]))
    for begin, end in edges.reshape(-1, 2):
        runs.append(tokenizer.decode(document.tokens[begin:end].tolist(), skip_special_tokens=False))
    return tokenizer.decode(document.tokens.tolist(), skip_special_tokens=False), "|".join(runs)


def test_answers_of_a_template_without_marks(encoder):
    text, answers = learnt(encoder(CHATML), {"messages": TALK})
    assert text.startswith("<|im_start|><|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nwhat is 1 + 1?<|im_end|>\n")
    assert answers == "it is 2<|im_end|>| a letter, a face 😀<|im_end|>"


def test_answers_that_a_template_marks(encoder):
    text, answers = learnt(encoder(MARKED), {"messages": TALK})
    assert text == "Q:be brief;Q:what is 1 + 1?;A:it is 2;Q:and é, 😀?;A: a letter, a face 😀;"
    assert answers == "it is 2;| a letter, a face 😀;"


def test_answers_without_a_template(encoder):
    text, answers = learnt(encoder(None), {"messages": TALK})
    assert text.startswith("system: be brief\nuser: what is 1 + 1?\nassistant: it is 2<|im_end|>\nuser: and")
    assert answers == "it is 2<|im_end|>| a letter, a face 😀<|im_end|>"


def test_a_completion_is_an_answer(encoder):
    made = encoder(CHATML)
    assert learnt(made, {"prompt": "2 + 2 =", "completion": " 4"}) == ("2 + 2 = 4<|im_end|>", " 4<|im_end|>")
    pair = {"prompt": TALK[:4], "completion": TALK[4:]}
    assert learnt(made, pair)[1] == " a letter, a face 😀<|im_end|>"


def test_the_exact_mask(encoder):
    """Token by token: what is learnt begins with the first token of the answer and ends with the one that ends it."""
    made, tokenizer = encoder(CHATML)
    document = made.encode(made.pick({"messages": TALK[1:3]}))
    head = "<|im_start|><|im_start|>user\nwhat is 1 + 1?<|im_end|>\n<|im_start|>assistant\n"
    asked, answered, rest = (tokenizer.encode(text).ids for text in (head, "it is 2<|im_end|>", "\n"))
    assert document.tokens.tolist() == asked + answered + rest
    assert document.learnt.tolist() == [False] * len(asked) + [True] * len(answered) + [False] * len(rest)
    sample = joined([document], 64, padding=0, positions=True)
    assert sample[0, : len(document.tokens) - 1].tolist() == document.tokens[:-1].tolist()
    assert [token for token in sample[1].tolist() if token != IGNORE] == answered
    assert sample[1, len(asked) - 1] == answered[0]  # the last token of the question is where the answer is asked for
    assert sample[2].tolist() == [*range(len(document.tokens) - 1), *range(64 - len(document.tokens) + 1)]


def test_a_template_that_rewrites_what_was_said_is_refused(encoder):
    made, _ = encoder("{% for message in messages %}{{ loop.revindex }}{{ message['content'] }}{% endfor %}")
    with pytest.raises(KfjobError, match="does not write a conversation as its beginning") as caught:
        made.encode(made.pick({"messages": TALK}))
    assert "{% generation %}" in str(caught.value.hint)


def test_a_template_that_refuses_says_why(encoder):
    made, _ = encoder("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(KfjobError, match="roles must alternate \\(roles: user\\)"):
        made.encode(made.pick({"messages": TALK[1:2]}))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ('{"text": "a"}', "neither `messages` nor `prompt` and `completion`"),
        ('{"messages": "a"}', "`messages` is no list of messages"),
        ('{"messages": [{"role": "user"}]}', "a message in `messages` has no role or no content"),
        ('{"prompt": "a"}', "neither"),
        ("[]", "it is no JSON object"),
    ],
)
def test_a_record_that_is_no_conversation_is_named(tiny, chat_folder, tmp_path, record, message):
    path = tmp_path / "chat.jsonl"
    path.write_text(record + "\n")
    spec = tiny | {"data": str(path), "data_format": "chat", "lanes": 1, "tokenizer": str(chat_folder / "tokenizer")}
    with pytest.raises(KfjobError, match=f"cannot read line 1 of .*\n  cause: {message}"):
        open_data(TrainSpec(**spec), rank=0, world_size=1).train.batch(1)


def test_conversations_read_as_text_are_pointed_out(tiny, chat_folder):
    with pytest.raises(KfjobError, match="no field `text`, but `messages`") as caught:
        open_data(TrainSpec(**tiny | {"data": str(chat_folder)}), rank=0, world_size=1).train.batch(1)
    assert caught.value.hint == "`data_format: chat` reads conversations"


def test_answers_that_never_begin_within_a_sample(tiny, chat_folder):
    spec = tiny | {"data": str(chat_folder), "data_format": "chat", "sequence_length": 3}
    with pytest.raises(KfjobError, match="there is nothing to learn"):
        open_data(TrainSpec(**spec), rank=0, world_size=1).train.batch(1)


@given(sizes=st.lists(st.integers(1, 4), max_size=12), answer=st.tuples(st.integers(0, 30), st.integers(1, 9)))
def test_tokens_of_a_span_are_those_that_touch_it(sizes, answer):
    """With tokens that leave nothing out: exactly those that overlap."""
    edges = np.cumsum([0, *sizes])
    tokens = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    begin, end = answer[0], answer[0] + answer[1]
    assert within(tokens, [(begin, end)]).tolist() == [a < end and b > begin for a, b in tokens]


@given(sizes=st.lists(st.integers(1, 64), max_size=120))
def test_best_fit_packs_all_and_overfills_none(sizes):
    bins = best_fit(sizes, 64)
    assert sorted(number for numbers in bins for number in numbers) == list(range(len(sizes)))
    filled = [sum(sizes[number] for number in numbers) for numbers in bins]
    assert all(0 < size <= 64 for size in filled)
    assert len(bins) <= 1 + sum(sizes) * 11 / 9 / 64 + sum(sizes) / 64  # far from one in each
    assert sum(1 for size in filled if size <= 32) <= 1


@pytest.mark.parametrize("length", [1, 4, 7, 100])
def test_every_token_of_a_cut_document_is_asked_for_once(length):
    document = Document(np.arange(20))
    parts = pieces(document, length, cut=True)
    assert [token for part in parts for token in part.tokens[1:]] == list(range(1, 20))
    assert all(1 < len(part.tokens) <= length + 1 for part in parts)


def test_a_conversation_that_is_too_long_loses_its_end():
    tokens, marks = np.arange(20), np.arange(20) > 10
    assert [len(part.tokens) for part in pieces(Document(tokens, marks), 12, cut=False)] == [13]
    assert pieces(Document(tokens, marks), 8, cut=False) == []


@pytest.mark.parametrize("packing", ["documents", "pad"])
@pytest.mark.parametrize("kind", ["text", "chat"])
def test_a_tokenised_folder_gives_what_streaming_gives(request, tiny, kind, packing):
    """The same targets in an epoch, though documents meet others in their samples."""
    folder = request.getfixturevalue("text_folder" if kind == "text" else "chat_folder")
    tokens = request.getfixturevalue("tokenised_folder" if kind == "text" else "tokenised_chat")
    spec = tiny | {"data": str(folder), "data_format": kind, "packing": packing, "sequence_length": 64, "lanes": 1}
    stream = open_data(TrainSpec(**spec), rank=0, world_size=1).train
    streamed = []
    while stream.position()["lanes"]["0"]["epoch"] == 0:
        streamed.append(stream.batch(1)[0])
    stored = open_samples(tokens, "train", 64, packing)
    assert asked(stored[number] for number in range(len(stored))) == asked(streamed)


def asked(samples):
    """Every target with what stands before it in its document, without order."""
    found = []
    for inputs, targets, *positions in samples:
        begin = 0
        for at, (target, position) in enumerate(zip(targets, positions[0] if positions else range(len(targets)), strict=True)):
            begin = at if position == 0 else begin
            if target != IGNORE:
                found.append((tuple(inputs[begin : at + 1]), int(target)))
    return sorted(found)
