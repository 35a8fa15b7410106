"""Tell the values of secrets from switches, numbers, references to variables, and paths. Pure."""

from __future__ import annotations

import re

from kfjob.redaction.names import Strength, is_ambiguous, is_chosen, is_secret_name, split_names, split_words

PLAIN = re.compile(
    r"(?:true|false|none|null|yes|no|on|off|default|auto|never|always|required|optional|unset|[|>][+-]?|\*+|x{3,}|\.{3,}|…|-+)?",
    re.IGNORECASE,
)
"""Words that are no secrets."""
RANDOM_LENGTH, MIN_WORD = 16, 6
_NUMBER_PART = r"[-+~]?[\d.,_]++(?:e[-+]?\d++)?(?:[KMGBTkmgbt]i?[Bb]?|%|[mun]?s|tok(?:ens?)?)?"
_NUMBER = re.compile(rf"{_NUMBER_PART}(?>(?:[/:x|]{_NUMBER_PART})*)(?:/[A-Za-z]{{1,8}})?")
"""Numbers as training programs print them: `1.2M`, `5/10`, `12:30`, `431/s`."""
_NAMED = r"\$(?:[A-Z_][A-Z0-9_]*|[a-z_]+|[0-9@*#?])(?!\w)"
"""A variable as people name them: `$uper5ecret` is a password."""
_VARIABLE = (
    rf"(?:\$\(\w+\)|\$\{{\w+(?::?\?[^}}]{{0,200}}|:?[-=+](?:{_NAMED}|\$\{{\w+\}})?)?\}}|{_NAMED}"
    r"|\[redacted\]|<[\w -]{1,40}>|\{\{[^{}]{1,80}\}\}"
    r"|<set to the key '[^'\n]{1,100}' (?:in|of) (?:secret|config ?map) '[^'\n]{1,100}'>)"
)
_VARIABLES = re.compile(
    rf"{_VARIABLE}(?:[/:.-]{{1,3}}{_VARIABLE}){{0,20}}[)\]}}>.:|]{{0,3}}"
    r"|id=[\w.-]{1,80}(?:,(?:src|source|env|type|target|dst|mode|uid|gid|required)=[\w./~${}-]{0,200}){0,10}"
)
"""References to variables and placeholders, and nothing else; `--secret id=…` of a build names a secret, too."""
_PATH_IN_VARIABLE = re.compile(r"(?:\$\(\w+\)|\$\{\w+\}|\$[A-Z_][A-Z0-9_]*)(?=/)")
_PATH = re.compile(r"(?:\.{0,2}|~)(?:/[\w.@-]{1,40})+/?")
_PROSE = re.compile(r"(?!(?:basic|bearer|token|digest|negotiate|ntlm|apikey|hmac|hawk)\b)[a-z]++(?:\s++[A-Za-z'-]++){2}")
"""The beginning of a sentence, not of credentials."""
_MESSAGE = re.compile(
    r"(?:must|should|shall|can|cannot|could|may|is|are|was|were|has|have|had|does|do|did|will|would|not|no|the|this|that|it"
    r"|if|when|for|from|with|by|at|authentication|login|access|permission)(?=[ ][A-Za-z\"'`(])"
    r"|(?:invalid|missing|empty|wrong|incorrect|expired|revoked|rejected|refused|denied|failed|failure|mismatch|unauthorized"
    r"|forbidden|unauthenticated|unknown|disabled|enabled|timeout|set|falsch|ung\u00fcltig|ungueltig|fehlt|incorrecte?|invalide|manquante?"
    r"|incorrect[ao]|inv\u00e1lid[ao]|incorret[ao]|[^\W\d_a-zA-Z\u00c0-\u024f]{1,40})(?=[.,;:!)]?(?:\s|\Z))",
    re.IGNORECASE,
)
"""Words with which a message about a secret goes on, after any name."""
_WORD_OF_MESSAGE = re.compile(r"[A-Za-z][a-z]{1,15}[.,;:]?[ ](?![\w.-]{1,80}=)(?=[A-Za-z\"'`(])")
"""A word of letters, with the next word of a message after it."""


FIELD_NAMES = split_names(
    "user username user_name login email mail name names host hostname port url uri path file id type kind value values "
    "field default description meaning example required optional string str int integer number float bool boolean text bytes "
    "object secret token key password passwd status state source format length size count config set unset hidden visible"
)
"""Names of fields and of types: `('password', 'username')` is a list of names."""
_STATE = re.compile(
    r"[a-z]+(?:ed|ing|ent|ble|ive|ous|ory|ary|ful|less|ly|en|al)"
    r"|wrong|missing|set|unset|empty|valid|invalid|correct|incorrect|weak|strong|short|long|null|none|good|bad|safe|unsafe|plain|public"
    r"|private|new|old|here|there|now|not|too|in|on|at|from|for|to|the|a|an|required|optional|ok|okay|fine|same|different|identical|less"
    r"|more|only|also|still|already|as|by|of|if|when|then|free|up|down|out|off|one|two|case|stale|unique|secret|active|false|true|read",
    re.IGNORECASE,
)
"""Words that say how something is: `the password is wrong`."""
_DURATION = re.compile(
    r"(?:\d+(?:ns|us|ms|[smhdwy]))+|\d+(?:st|nd|rd|th)|[vV]?\d+(?:\.\d+)+\w*|0x[0-9a-f]{1,16}", re.IGNORECASE
)
_WORD_AND_END = re.compile(r"([A-Za-z]{1,20}+)[.,;!]?(?=\s|\Z)")
_RESULTS = split_names("done ok okay passed failed skipped success yes no pass fail")
"""Words after the dots of a check: `Checking password ... ok`."""
_MAX_JUDGED = 1000
"""Characters of a value that can be harmless, or in brackets: a longer one after the name of a secret is one."""
_MIN_CHOSEN = 6
_MIN_DENSE = 12
_TOKEN_LETTERS = re.compile(r"[A-Za-z0-9+/=_-]+")
_WORDS = re.compile(r"[A-Z]?[a-z]{3,}+")
_HEX = re.compile(r"[0-9a-f]{32,}+", re.IGNORECASE)
_MODEL = re.compile(
    r"(?=(?:[a-z0-9.]{1,20}-){0,6}(?:v\d{1,2}|\d{1,4}(?:\.\d)?[bmk]|base|large|small|mini|tiny|xl|xxl|instruct|chat|it|cased|uncased)(?:-|\Z))"
    r"[a-z][a-z0-9.]{0,20}(?:-[a-z0-9.]{1,20}){1,7}"
)
"""The name of a model, such as `t5-base-v1`."""


def is_field_name(value: str) -> bool:
    """Return whether a value is the name of a field or of a type, instead of a secret."""
    return value.lower() in FIELD_NAMES or is_secret_name(value)


def is_state(value: str) -> bool:
    """Return whether a word says how something is."""
    return bool(_STATE.fullmatch(value))


def looks_chosen(value: str) -> bool:
    """Return whether a word looks like a password or a token: it has letters and digits, or is masked."""
    is_masked = "***" in value and value.strip("*") != ""
    is_mixed = len(value) >= _MIN_CHOSEN and has_digit_and_letter(value) and not _DURATION.fullmatch(value)
    return is_masked or is_mixed or looks_random(value)


def cut_value(text: str, span: tuple[int, int]) -> str:
    """Return the part of a value that decides whether it is a secret.

    No more of it is read, because the names in a value that is none are read next.
    """
    return text[span[0] : min(span[1], span[0] + _MAX_JUDGED + 1)]


def is_harmless(value: str) -> bool:
    """Return whether a value is no secret under any name: a switch, a reference, a path of at most `_MAX_JUDGED` characters."""
    if len(value) > _MAX_JUDGED:
        return False
    path = _PATH_IN_VARIABLE.sub("", value, count=1)
    is_path = _PATH.fullmatch(path) and not looks_random(path)
    return bool(is_path or PLAIN.fullmatch(value) or _VARIABLES.fullmatch(value))


def ends_reference(text: str, start: int) -> int | None:
    """Return where a reference to a variable, or a placeholder, ends that is the whole value at `start`."""
    match = _VARIABLES.match(text, start)
    return match.end() if match and (match.end() == len(text) or text[match.end()] in " \t\n,;\"'`&)]}") else None


def begins_message(name: str, text: str, start: int) -> bool:
    """Return whether the text after `name: ` is the next part of a message, as in `webhook: connection refused`.

    The line is drawn by these signs. The name and the value have no quotes, and the separator is `: `. Machines make tokens,
    keys and webhooks, so a plain word before another word is not a secret. People choose passwords and secrets: after such a
    name only the verbs, prepositions and states of `_MESSAGE` count. A lone word is a secret, unless it is a state.
    """
    return bool(_MESSAGE.match(text, start) or (not is_chosen(name) and _WORD_OF_MESSAGE.match(text, start)))


def is_prose(text: str, start: int) -> bool:
    """Return whether words of a language, or a word about a state, stand at a position: `token (str): the token of the hub`."""
    word = _WORD_AND_END.match(text, start)
    return bool(_WORD_OF_MESSAGE.match(text, start) or (word and (is_state(word[1]) or word[1].lower() in _RESULTS)))


def looks_random(value: str) -> bool:
    """Return whether a text is as long and as mixed as a token."""
    kinds = (str.islower, str.isupper, str.isdecimal)
    return len(value) >= RANDOM_LENGTH and all(any(kind(character) for character in value) for kind in kinds)


def is_number(value: str) -> bool:
    """Return whether a value is a figure, perhaps with a unit."""
    return bool(_NUMBER.fullmatch(value.rstrip("%")))


def is_hex(value: str) -> bool:
    """Return whether a text has the digits of a key of 128 bits or more, and nothing else."""
    return bool(_HEX.fullmatch(value))


def looks_dense(value: str) -> bool:
    """Return whether a text mixes small letters, capitals and digits as no name does: `Zk8vQ2mL`, not `Llama3Instruct`."""
    kinds = (str.islower, str.isupper, str.isdecimal)
    return (
        len(value) >= _MIN_DENSE
        and _TOKEN_LETTERS.fullmatch(value) is not None
        and all(any(map(kind, value)) for kind in kinds)
        and not has_words(value)
    )


def has_words(value: str) -> bool:
    """Return whether half of a text are words of small letters: `Llama3Instruct8BSft`."""
    return 2 * sum(len(word) for word in _WORDS.findall(value)) >= len(value)


def has_digit_and_letter(value: str) -> bool:
    """Return whether a text has both."""
    return any(character.isdecimal() for character in value) and any(character.isalpha() for character in value)


def is_secret_setting(name: str, value: str) -> bool:
    """Return whether the value of a variable, an option or a field is a secret.

    `is_secret_name` decides for a name alone, and in JSON the redactor leaves references to Kubernetes secrets out before. An
    ambiguous name, such as `image_key`, needs a value that looks like a secret. `is_secret_value` decides for a text, where the
    name may be a word of a sentence.
    """
    if is_ambiguous(name):
        return is_secret_value(name, Strength.WEAK, value)
    return is_secret_name(name) and not is_harmless(value)


def is_secret_value(name: str, strength: Strength, value: str) -> bool:
    """Return whether `name=value` in a text is a secret; texts hold words such as `key: model.layers.0` and `token: 5`."""
    if strength is Strength.ORDINARY or is_harmless(value):
        return False
    in_brackets = len(value) <= _MAX_JUDGED and value[0] + value[-1] in ("<>", "[]", "()", "{}")
    if strength is Strength.LINE:
        return not _PROSE.match(value) or is_chosen(name)
    if strength is Strength.STRONG:
        return not in_brackets or has_digit_and_letter(value)
    if in_brackets or _NUMBER.fullmatch(value):
        return False
    return strength is Strength.NAMED or _is_weak_secret(name, value)


def _is_weak_secret(name: str, value: str) -> bool:
    if is_ambiguous(name):
        is_variable = name.isupper() and (looks_dense(value) or is_hex(value))
        return bool(is_variable) or (looks_random(value) and not has_words(value))
    has_digit = any(character.isdecimal() for character in value)
    is_word = has_digit and len(value) >= MIN_WORD and not any(character in ". \t" for character in value)
    is_token = is_word and split_words(name)[-1:] not in (["KEY"], ["KEYS"]) and not _MODEL.fullmatch(value)
    return looks_random(value) or is_token
