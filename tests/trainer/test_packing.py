"""Packing of whole documents into samples, and the loss masks of conversations."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from kfjob.base.errors import KfjobError
from kfjob.trainer.data.chat import ChatEncoder, mask_tokens
from kfjob.trainer.data.documents import Document, TextEncoder
from kfjob.trainer.data.packing import IGNORE, best_fit, pack_documents, split_document
from kfjob.trainer.data.sources import open_data
from kfjob.trainer.data.token_files import open_samples
from kfjob.trainer.data.tokenizer import open_tokenizer
from kfjob.trainspec.train_spec import TrainSpec

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
    """Returns the encoder of a template and its tokenizer, which has ChatML's markers as special tokens."""

    def make_encoder(template):
        tokens = {"bos_token": {"content": "<|im_start|>"}, "eos_token": "<|im_end|>"}
        tokenizer = save_tokenizer(text_folder, tmp_path, **tokens, chat_template=template)
        return ChatEncoder(open_tokenizer(tmp_path)), tokenizer

    return make_encoder


def save_tokenizer(text_folder, target, *, post_processor=False, **config):
    tokenizer = tokenizers.Tokenizer.from_file(str(text_folder / "tokenizer" / "tokenizer.json"))
    tokenizer.add_special_tokens(["<bos>", "<eos>", "<|im_start|>", "<|im_end|>"])
    if post_processor:
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", tokenizer.token_to_id("<bos>"))]
        )
    tokenizer.save(str(target / "tokenizer.json"))
    config = {"bos_token": "<bos>", "eos_token": "<eos>"} | config
    (target / "tokenizer_config.json").write_text(json.dumps(config))
    return tokenizer


@pytest.mark.parametrize(
    ("post_processor", "config", "begins"),
    [
        (False, {"add_bos_token": True}, True),
        (False, {"add_bos_token": False}, False),
        (False, {}, False),
        (True, {}, True),
        (True, {"add_bos_token": False}, False),
        (False, {"add_bos_token": True, "bos_token": None}, False),
        (False, {"add_bos_token": True, "bos_token": {"content": "<bos>"}}, True),
    ],
)
def test_text_begins_as_the_tokenizer_says(text_folder, tmp_path, post_processor, config, begins):
    reference = save_tokenizer(text_folder, tmp_path, post_processor=post_processor, **config)
    tokenizer = open_tokenizer(tmp_path)
    bos, eos = reference.token_to_id("<bos>"), reference.token_to_id("<eos>")
    begin = [bos] if begins else []
    prompt, answer = (reference.encode(text, add_special_tokens=False).ids for text in ("loss rank", " shard"))
    text = TextEncoder("text", tokenizer).encode("loss rank")
    assert text.tokens.tolist() == [*begin, *prompt, eos]
    completion = ChatEncoder(tokenizer).encode({"prompt": "loss rank", "completion": " shard"})
    assert completion.tokens.tolist() == [*begin, *prompt, *answer, eos]
    assert completion.loss_mask is not None
    assert completion.loss_mask.tolist() == [False] * len([*begin, *prompt]) + [True] * len([*answer, eos])
    chat = ChatEncoder(tokenizer).encode(
        {"messages": [{"role": "user", "content": "loss"}], "tools": None, "prompt_messages": 0}
    )
    assert chat.tokens.tolist().count(bos) == len(begin)
    plain = save_tokenizer(text_folder, tmp_path)
    assert (open_tokenizer(tmp_path).fingerprint != tokenizer.fingerprint) == (begins or post_processor), plain


def test_template_of_a_tokenizer_adds_its_own_begin_of_text(text_folder, tmp_path):
    save_tokenizer(text_folder, tmp_path, add_bos_token=True, chat_template="{{ bos_token }}{{ messages[0]['content'] }}")
    tokenizer = open_tokenizer(tmp_path)
    chat = ChatEncoder(tokenizer).encode(
        {"messages": [{"role": "user", "content": "loss"}], "tools": None, "prompt_messages": 0}
    )
    assert chat.tokens.tolist().count(tokenizer.begin_of_text) == 1


def text_and_answers(encoder_and_tokenizer, record):
    """Return the text of a record, and its parts that have a loss, joined by |."""
    encoder, tokenizer = encoder_and_tokenizer
    document = encoder.encode(encoder.extract(record))
    runs, edges = [], np.flatnonzero(np.diff([0, *document.loss_mask, 0]))
    for begin, end in edges.reshape(-1, 2):
        runs.append(tokenizer.decode(document.tokens[begin:end].tolist(), skip_special_tokens=False))
    return tokenizer.decode(document.tokens.tolist(), skip_special_tokens=False), "|".join(runs)


def test_template_without_generation_blocks(encoder):
    text, answers = text_and_answers(encoder(CHATML), {"messages": TALK})
    assert text.startswith("<|im_start|><|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nwhat is 1 + 1?<|im_end|>\n")
    assert answers == "it is 2<|im_end|>| a letter, a face 😀<|im_end|>"


def test_template_with_generation_blocks(encoder):
    text, answers = text_and_answers(encoder(MARKED), {"messages": TALK})
    assert text == "Q:be brief;Q:what is 1 + 1?;A:it is 2;Q:and é, 😀?;A: a letter, a face 😀;"
    assert answers == "it is 2;| a letter, a face 😀;"


def test_tokenizer_without_a_template(encoder):
    text, answers = text_and_answers(encoder(None), {"messages": TALK})
    assert text.startswith("system: be brief\nuser: what is 1 + 1?\nassistant: it is 2<|im_end|>\nuser: and")
    assert answers == "it is 2<|im_end|>| a letter, a face 😀<|im_end|>"


def test_completion_is_an_answer(encoder):
    chatml = encoder(CHATML)
    assert text_and_answers(chatml, {"prompt": "2 + 2 =", "completion": " 4"}) == ("2 + 2 = 4<|im_end|>", " 4<|im_end|>")
    pair = {"prompt": TALK[:4], "completion": TALK[4:]}
    assert text_and_answers(chatml, pair)[1] == " a letter, a face 😀<|im_end|>"


def test_loss_mask_token_by_token(encoder):
    """The mask begins with the first token of the answer and ends with its end-of-turn token."""
    chat_encoder, tokenizer = encoder(CHATML)
    document = chat_encoder.encode(chat_encoder.extract({"messages": TALK[1:3]}))
    head = "<|im_start|><|im_start|>user\nwhat is 1 + 1?<|im_end|>\n<|im_start|>assistant\n"
    question, answer, rest = (tokenizer.encode(text).ids for text in (head, "it is 2<|im_end|>", "\n"))
    assert document.tokens.tolist() == question + answer + rest
    assert document.loss_mask.tolist() == [False] * len(question) + [True] * len(answer) + [False] * len(rest)
    sample = pack_documents([document], 64, padding=0, positions=True)
    assert sample[0, : len(document.tokens) - 1].tolist() == document.tokens[:-1].tolist()
    assert [token for token in sample[1].tolist() if token != IGNORE] == answer
    assert sample[1, len(question) - 1] == answer[0]  # the last token of the question predicts the answer
    assert sample[2].tolist() == [*range(len(document.tokens) - 1), *range(64 - len(document.tokens) + 1)]


def test_template_that_changes_earlier_messages_is_an_error(encoder):
    chat_encoder, _ = encoder("{% for message in messages %}{{ loop.revindex }}{{ message['content'] }}{% endfor %}")
    with pytest.raises(KfjobError, match="changes earlier messages when a conversation continues") as caught:
        chat_encoder.encode(chat_encoder.extract({"messages": TALK}))
    assert "{% generation %}" in str(caught.value.hint)


def test_error_quotes_the_template(encoder):
    chat_encoder, _ = encoder("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(KfjobError, match="roles must alternate \\(roles: user\\)"):
        chat_encoder.encode(chat_encoder.extract({"messages": TALK[1:2]}))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ('{"text": "a"}', "neither `messages` nor `prompt` and `completion`"),
        ('{"messages": "a"}', "`messages` is not a list of messages"),
        ('{"messages": [{"role": "user"}]}', "a message in `messages` has no role or no content"),
        ('{"prompt": "a"}', "neither"),
        ("[]", "it is not a JSON object"),
    ],
)
def test_error_names_the_invalid_conversation(tiny, chat_folder, tmp_path, record, message):
    path = tmp_path / "chat.jsonl"
    path.write_text(record + "\n")
    spec = tiny | {"data": str(path), "data_format": "chat", "lanes": 1, "tokenizer": str(chat_folder / "tokenizer")}
    with pytest.raises(KfjobError, match=f"cannot read line 1 of .*\n  cause: {message}"):
        open_data(TrainSpec(**spec), rank=0, world_size=1).train.read_batch(1)


def test_no_answer_within_a_sample_is_an_error(tiny, chat_folder):
    spec = tiny | {"data": str(chat_folder), "data_format": "chat", "sequence_length": 3}
    with pytest.raises(KfjobError, match="no tokens to train on"):
        open_data(TrainSpec(**spec), rank=0, world_size=1).train.read_batch(1)


@given(sizes=st.lists(st.integers(1, 4), max_size=12), answer=st.tuples(st.integers(0, 30), st.integers(1, 9)))
def test_mask_covers_the_tokens_that_overlap_an_answer(sizes, answer):
    """The tokens have no gaps, so exactly the overlapping ones belong to the answer."""
    edges = np.cumsum([0, *sizes])
    tokens = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    begin, end = answer[0], answer[0] + answer[1]
    assert mask_tokens(tokens, [(begin, end)]).tolist() == [a < end and b > begin for a, b in tokens]


@given(sizes=st.lists(st.integers(1, 64), max_size=120))
def test_best_fit_packs_every_item_within_capacity(sizes):
    bins = best_fit(sizes, 64)
    assert sorted(number for numbers in bins for number in numbers) == list(range(len(sizes)))
    fill_levels = [sum(sizes[number] for number in numbers) for numbers in bins]
    assert all(0 < size <= 64 for size in fill_levels)
    assert len(bins) <= 1 + sum(sizes) * 11 / 9 / 64 + sum(sizes) / 64  # far fewer bins than items
    assert sum(1 for size in fill_levels if size <= 32) <= 1


@pytest.mark.parametrize("length", [1, 4, 7, 100])
def test_every_token_of_a_split_document_is_a_target_once(length):
    document = Document(np.arange(20))
    parts = split_document(document, length, truncate=False)
    assert [token for part in parts for token in part.tokens[1:]] == list(range(1, 20))
    assert all(1 < len(part.tokens) <= length + 1 for part in parts)


def test_long_conversation_is_truncated():
    tokens, loss_mask = np.arange(20), np.arange(20) > 10
    assert [len(part.tokens) for part in split_document(Document(tokens, loss_mask), 12, truncate=True)] == [13]
    assert split_document(Document(tokens, loss_mask), 8, truncate=True) == []


@pytest.mark.parametrize("packing", ["documents", "pad"])
@pytest.mark.parametrize("kind", ["text", "chat"])
def test_tokenised_folder_has_the_same_targets_as_streaming(request, tiny, kind, packing):
    """The targets of an epoch are equal, although documents share samples with different ones."""
    folder = request.getfixturevalue("text_folder" if kind == "text" else "chat_folder")
    tokens = request.getfixturevalue("tokenised_folder" if kind == "text" else "tokenised_chat")
    spec = tiny | {"data": str(folder), "data_format": kind, "packing": packing, "sequence_length": 64, "lanes": 1}
    stream = open_data(TrainSpec(**spec), rank=0, world_size=1).train
    streamed = []
    while stream.position()["lanes"]["0"]["epoch"] == 0:
        streamed.append(stream.read_batch(1)[0])
    stored = open_samples(tokens, "train", 64, packing)
    assert targets_of(stored[number] for number in range(len(stored))) == targets_of(streamed)


def targets_of(samples):
    """Return every target with the tokens before it in its document, sorted."""
    targets_with_context = []
    for inputs, targets, *positions in samples:
        begin = 0
        token_positions = positions[0] if positions else range(len(targets))
        for index, (target, position) in enumerate(zip(targets, token_positions, strict=True)):
            begin = index if position == 0 else begin
            if target != IGNORE:
                targets_with_context.append((tuple(inputs[begin : index + 1]), int(target)))
    return sorted(targets_with_context)
