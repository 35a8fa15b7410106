"""Conversations and pairs of prompt and completion, of which only the answers are learnt.

A conversation is written by the tokenizer's own chat template, or by a plain one. What of the text is an answer is told by the
template's `{% generation %}` marks where it has them; else an answer is what an assistant's message adds to the text that ends
with the template's invitation to answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kfjob.errors import KfjobError
from kfjob.trainer.data.documents import Document, Learnt
from kfjob.trainer.data.tokenizer import TextTokenizer

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
"""For tokenizers without a template: `user: …`, `assistant: …` with an end-of-text token after it."""
_MARKED = re.compile(r"\{%-?\s*generation\s*-?%\}")

Span = tuple[int, int]
"""Characters of a text, from and to."""
Message = Mapping[str, Any]


class ChatEncoder:
    """Records with `messages` (each with role and content; perhaps `tools` beside them), or `prompt` and `completion`."""

    cut = False
    columns = ["messages", "prompt", "completion", "tools"]  # noqa: RUF012 -- the protocol's, and never changed

    def __init__(self, tokenizer: TextTokenizer) -> None:
        """Write as the tokenizer's template does."""
        self._tokenizer = tokenizer
        self._template = tokenizer.chat_template or PLAIN_TEMPLATE
        self._marked = bool(_MARKED.search(self._template))

    def pick(self, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The record's parts that count, checked."""
        if not isinstance(record, Mapping):
            raise TypeError("it is no JSON object")
        if record.get("messages") is not None:
            return {"messages": _messages(record["messages"], "messages"), "tools": record.get("tools"), "after": 0}
        if record.get("prompt") is None or record.get("completion") is None:
            raise LookupError("neither `messages` nor `prompt` and `completion`")
        prompt, completion = record["prompt"], record["completion"]
        if isinstance(prompt, str) and isinstance(completion, str):
            return {"prompt": prompt, "completion": completion}
        messages = [*_messages(prompt, "prompt"), *_messages(completion, "completion")]
        return {"messages": messages, "tools": record.get("tools"), "after": len(prompt)}

    def encode(self, item: Any) -> Document:
        """The tokens of the answers are learnt, with what ends them."""
        if "prompt" in item:
            end = self._tokenizer.special_tokens["eos_token"]
            text = item["prompt"] + item["completion"] + end
            return self._document(text, [(len(item["prompt"]), len(text))])
        text, answers = self.rendered(item["messages"], item["tools"], after=item["after"])
        return self._document(text, answers)

    def rendered(self, messages: Sequence[Message], tools: Any = None, *, after: int = 0) -> tuple[str, list[Span]]:
        """The conversation's text and the answers in it, but for those before message number `after`.

        Raises:
            KfjobError: the template refuses the messages, or writes the same ones in different ways.
        """
        if self._marked and not after:
            return self._render(messages, tools)
        text, _ = self._render(messages, tools)
        answers = []
        for number, message in enumerate(messages):
            if number < after or message["role"] != "assistant":
                continue
            invited, _ = self._render(messages[:number], tools, invite=True)
            answered, _ = self._render(messages[: number + 1], tools)
            if not (answered.startswith(invited) and text.startswith(answered.rstrip())):
                raise KfjobError(
                    "the chat template does not write a conversation as its beginning and what comes then",
                    location="tokenizer",
                    hint="mark the answers in it with {% generation %} … {% endgeneration %}",
                )
            answers.append((len(invited), len(answered.rstrip())))
        return text, answers

    def _render(self, messages: Sequence[Message], tools: Any, *, invite: bool = False) -> tuple[str, list[Span]]:
        from jinja2 import TemplateError
        from transformers.utils import chat_template_utils

        render: Any = chat_template_utils.render_jinja_template  # its annotations say less than it takes and returns

        try:
            texts, marks = render(
                [list(messages)],
                tools=tools or None,
                chat_template=self._template,
                return_assistant_tokens_mask=self._marked,
                add_generation_prompt=invite,
                **self._tokenizer.special_tokens,
            )
        except (TemplateError, TypeError, ValueError) as error:
            roles = ", ".join(str(message["role"]) for message in messages)
            raise KfjobError(
                "the chat template cannot write a conversation", location="data", cause=f"{error} (roles: {roles})"
            ) from error
        return texts[0], [(begin, end) for begin, end in marks[0]] if marks else []

    def _document(self, text: str, answers: list[Span]) -> Document:
        numbers, spans = self._tokenizer.encode_with_spans(text)
        return Document(np.array(numbers, dtype=np.int64), within(spans, answers))


def within(spans: Sequence[Span], answers: Sequence[Span]) -> Learnt:
    """Which tokens stand for a character of an answer.

    Some tokenizers leave the space before a word out of a token's span, so a token also stands for what lies between the one
    before it and itself. Several tokens of one character have the same span.
    """
    begins, ends = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    begins = np.minimum(begins, np.concatenate([[0], np.maximum.accumulate(ends)[:-1]]))
    learnt = np.zeros(len(spans), dtype=np.bool_)
    for begin, end in answers:
        learnt |= (begins < end) & (ends > begin)
    return learnt


def _messages(value: Any, field: str) -> Sequence[Message]:
    if not isinstance(value, list) or not value:
        raise TypeError(f"`{field}` is no list of messages")
    for message in value:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or "content" not in message:
            raise TypeError(f"a message in `{field}` has no role or no content")
    return value
