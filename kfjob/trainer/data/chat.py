"""Encodes conversations, and pairs of prompt and completion; only the answers have a loss.

The tokenizer's own chat template renders a conversation, or a plain template if it has none. A template with
`{% generation %}` blocks marks the answers itself. Otherwise an answer is the text that an assistant message appends to the
conversation before it, rendered with the generation prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kfjob.base.errors import KfjobError
from kfjob.trainer.data.documents import Document, LossMask, describe_fields
from kfjob.trainer.data.records import MAX_DOCUMENT_CHARACTERS, NO_OBJECT, RecordError, check_size, count_characters
from kfjob.trainer.data.tokenizer import TextTokenizer

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
"""For tokenizers without a template: `user: …`, `assistant: …` followed by an end-of-text token."""
_GENERATION_BLOCK = re.compile(r"\{%-?\s*generation\s*-?%\}")

MAX_MESSAGES = 4000
"""Messages of a conversation. For each answer the template renders all earlier messages again: a minute for 4000."""
Span = tuple[int, int]
"""A range of characters of a text: begin and end."""
Message = Mapping[str, Any]


class ChatEncoder:
    """Encodes records with `messages` (each with role and content; `tools` is optional), or `prompt` and `completion`."""

    splits_documents = False
    columns = ("messages", "prompt", "completion", "tools")

    def __init__(self, tokenizer: TextTokenizer) -> None:
        """Render with the tokenizer's template."""
        self._tokenizer = tokenizer
        self._template = tokenizer.chat_template or PLAIN_TEMPLATE
        self._has_template = tokenizer.chat_template is not None
        self._template_marks_answers = bool(_GENERATION_BLOCK.search(self._template))

    def extract(self, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the messages, or the prompt and the completion, of a valid record."""
        if not isinstance(record, Mapping):
            raise RecordError(NO_OBJECT)
        check_size(count_characters([record.get(name) for name in self.columns]), MAX_DOCUMENT_CHARACTERS, "it", "characters")
        if record.get("messages") is not None:
            messages = _check_messages(record["messages"], "messages")
            return {"messages": messages, "tools": record.get("tools"), "prompt_messages": 0}
        if record.get("prompt") is None or record.get("completion") is None:
            hint = "rename the fields, or set `data_format: text` if the records are no conversations"
            raise RecordError(f"neither `messages` nor `prompt` and `completion`{describe_fields(record)}", hint=hint)
        prompt, completion = record["prompt"], record["completion"]
        if isinstance(prompt, str) and isinstance(completion, str):
            return {"prompt": prompt, "completion": completion}
        messages = [*_check_messages(prompt, "prompt"), *_check_messages(completion, "completion")]
        return {"messages": messages, "tools": record.get("tools"), "prompt_messages": len(prompt)}

    def encode(self, item: Any) -> Document:
        """Tokenise the conversation; the loss covers the answers and the tokens that end them."""
        if "prompt" in item:
            end_of_text = self._tokenizer.special_tokens["eos_token"]
            text = item["prompt"] + item["completion"] + end_of_text
            return self._encode_text(text, [(len(item["prompt"]), len(text))], begin=True)
        text, answers = self._render_answers(item["messages"], item["tools"], skip=item["prompt_messages"])
        return self._encode_text(text, answers, begin=not self._has_template)  # a tokenizer's own template has the token

    def _render_answers(self, messages: Sequence[Message], tools: Any, *, skip: int) -> tuple[str, list[Span]]:
        """Return the text of the conversation and the spans of its answers, without those in the first `skip` messages.

        Raises:
            KfjobError: the template rejects the messages, or renders the same messages in different ways.
        """
        if self._template_marks_answers and not skip:
            return self._render(messages, tools)
        text, _ = self._render(messages, tools)
        answers = []
        for number, message in enumerate(messages):
            if number < skip or message["role"] != "assistant":
                continue
            before, _ = self._render(messages[:number], tools, generation_prompt=True)
            after, _ = self._render(messages[: number + 1], tools)
            if not (after.startswith(before) and text.startswith(after.rstrip())):
                raise KfjobError(
                    "the chat template changes earlier messages when a conversation continues",
                    location="tokenizer",
                    hint="mark the answers in the template with {% generation %} … {% endgeneration %}",
                )
            answers.append((len(before), len(after.rstrip())))
        return text, answers

    def _render(self, messages: Sequence[Message], tools: Any, *, generation_prompt: bool = False) -> tuple[str, list[Span]]:
        from transformers.utils import chat_template_utils

        render: Any = chat_template_utils.render_jinja_template  # its annotations are narrower than its arguments and result

        try:
            texts, spans = render(
                [list(messages)],
                tools=tools or None,
                chat_template=self._template,
                return_assistant_tokens_mask=self._template_marks_answers,
                add_generation_prompt=generation_prompt,
                **self._tokenizer.special_tokens,
            )
        except Exception as error:  # the template is a program of others
            roles = ", ".join(str(message["role"]) for message in messages)
            raise KfjobError(
                "the chat template cannot render a conversation",
                location="data",
                cause=f"{error or type(error).__name__} (roles: {roles})",
            ) from error
        return texts[0], [(begin, end) for begin, end in spans[0]] if spans else []

    def _encode_text(self, text: str, answers: list[Span], *, begin: bool) -> Document:
        token_ids, spans = self._tokenizer.encode_with_spans(text)
        if begin and self._tokenizer.begin_of_text is not None:
            token_ids, spans = [self._tokenizer.begin_of_text, *token_ids], [(0, 0), *spans]
        return Document(np.array(token_ids, dtype=np.int64), mask_tokens(spans, answers))


def mask_tokens(spans: Sequence[Span], answers: Sequence[Span]) -> LossMask:
    """Return for each token, given by its span, whether it holds a character of an answer.

    Some tokenizers exclude the space before a word from a token's span. A token therefore also covers the gap between the
    token before it and itself. Several tokens of one character have the same span.
    """
    begins, ends = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    begins = np.minimum(begins, np.concatenate([[0], np.maximum.accumulate(ends)[:-1]]))
    mask = np.zeros(len(spans), dtype=np.bool_)
    for begin, end in answers:
        mask |= (begins < end) & (ends > begin)
    return mask


def _check_messages(value: Any, field: str) -> Sequence[Message]:
    if not isinstance(value, list) or not value:
        raise RecordError(f"`{field}` is not a list of messages")
    check_size(len(value), MAX_MESSAGES, f"`{field}`", "messages")
    for message in value:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or "content" not in message:
            raise RecordError(f"a message in `{field}` has no role or no content")
    return value
