"""Secrets are recognised by names, shapes and known values, and ordinary names and lines stay."""

from __future__ import annotations

import json
import re

import pytest

from kfjob.redaction import REDACTED, Redactor, collect_secrets, find_secret, is_secret_name
from kfjob.redaction.token_shapes import TOKEN_SHAPES

AWS = "AKIA" + "IOSFODNN7EXAMPLE"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"  # noqa: S105 - from AWS's documentation

split = str.split
SECRET_NAMES = split("""
DB_PASS DB_PASSWORD PASSWORD PGPASSWORD MYSQL_PWD HF_TOKEN WANDB_API_KEY AWS_SECRET_ACCESS_KEY KEY SECRET
CLIENT_SECRET WEBHOOK SLACK_WEBHOOK_URL SENTRY_DSN GIT_CREDENTIALS api-key apiKey accessToken auth_token
SSH_PRIVATE_KEY TLS_KEY_PEM DB_PASSWORD_OLD API_KEY_2 OPENAI_KEY privateKey wandb.api_key --hub-token
_password NPM_AUTH COMET_API_KEY PASSPHRASE signing-key token
""")
ORDINARY_NAMES = split("""
tokenizer max_tokens MAX_TOKENS key_value_heads num_key_value_heads TOKENIZERS_PARALLELISM eos_token pad_token
bos_token_id num_tokens tokens_per_second keyboard KEY_COUNT primary_key cache_key PUBLIC_KEY passes n_passes
bypass compass PWD OLDPWD secret_name SECRET_NAME TOKEN_FILE token_path AWS_ACCESS_KEY_ID monkey
hotkey_enabled author authority key_dim PASS_COUNT tokenizer_name token_dtype attention_key_size SSH_AUTH_SOCK
topologyKey
""")


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_secret_name_is_recognised(name):
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ORDINARY_NAMES)
def test_ordinary_name_is_no_secret(name):
    assert not is_secret_name(name)


TEXTS = [
    ("key " + AWS + " and {}", AWS_SECRET),
    ("url postgres://me:{}@db/x", "hunter2"),
    ("url redis://:{}@cache:6379", "pw"),
    ("git https://{}@github.com/a/b", "0123456789abcdef0123456789abcdef01234567"),
    ("python train.py --token {} --steps 5", "abc"),
    ("python train.py --token={} --steps 5", "abc"),
    ("python train.py --wandb-key '{}'", "a b c"),
    ('python train.py --db-password "{}"', "it is long"),
    ("train.py ++logger.api_key={}", "deadbeef"),
    ("curl -u me:{} https://x", "hunter2"),
    ("curl --user me:{} https://x", "hunter2"),
    ("Authorization: Bearer {}", "abcdefgh12345678"),
    ("authorization: basic {}", "dXNlcjpwYXNzd29yZDE="),
    ("export DB_PASSWORD={}", "7"),
    ("password: {}", "correcthorse"),
    ("secret={}", "hunter2"),
    ("{{'api_key': '{}', 'a': 1}}", "abc"),
    ('{{"api_key": "{}", "a": 1}}', "abc"),
    ('{{\\"api_key\\": \\"{}\\"}}', "abc"),
    ("GET /x?a=1&access_token={}&b=2", "abc"),
    ("GET /blob?sv=2022&sig={}&se=1", "a1b2c3d4e5%2F"),
    ("GET /x?X-Amz-Signature={}", "0123456789abcdef"),
    ("AccountKey={}", "abc=="),
    ("-----BEGIN RSA PRIVATE KEY-----{}-----END RSA PRIVATE KEY-----", "MIIE"),
]


@pytest.mark.parametrize(("text", "secret"), TEXTS)
def test_secret_in_text_is_redacted(text, secret):
    redacted = Redactor().text(text.format(secret))
    assert secret not in redacted
    assert REDACTED in redacted


LINES = [
    "step 10 loss=2.31 tokens/s: 51234 key=model.layers.0.weight",
    "Missing key: model.layers.0.self_attn.k_proj.weight",
    "KeyError: 'labels'",
    "eos_token='</s>' pad_token: [PAD] bos_token=<s> token: 5",
    "max_tokens=4096 num_key_value_heads: 8 tokenizer=gpt2",
    "python train.py --tokenizer gpt2 --max-tokens 4096 --num-key-value-heads 8 --key-dim 64",
    "PASS: test_one; FAIL: test_two",
    "https://github.com/pytorch/pytorch/issues/1 and git@github.com:a/b.git and ssh://git@github.com/a",
    "see https://example.com/a@b and mail me@example.com",
    'secret "hf-token" not found',
    "couldn't find key token in Secret ns/hf",
    "basic operations, bearer authentication",
    "token=None api_key=null password: ${DB_PASSWORD} secret=$(S)",
    "commit 0123456789abcdef0123456789abcdef01234567",
    "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef",
    "signature: forward(x) -> Tensor",
    "GOOGLE_APPLICATION_CREDENTIALS=/var/run/secrets/gcp.json HF_TOKEN_PATH=/run/token",
    "author=me authority: ca.crt",
]


@pytest.mark.parametrize("line", LINES)
def test_ordinary_line_stays(line):
    assert Redactor().text(line) == line


SPEC = {
    "name": "llama",
    "command": ["python", "train.py", "--token", "abc1", "--tokenizer", "gpt2", "--api-key=xyz7", "--user", "me:pw99"],
    "env": {
        "DB_PASS": "hunter2",
        "PIN_PASSWORD": 12345678,
        "HF_TOKEN": {"secret": "hf", "key": "token"},
        "MODEL": "llama",
        "API_KEY": "$(FROM_ELSEWHERE)",
        "URL": "postgres://me:s3cr3t@db/x",
        "DEBUG_TOKEN": "true",
    },
    "train": {"tokenizer": "gpt2", "hub_token": "hf/token", "wandb_key": "wandb/key", "max_tokens": 5},
    "pull_secrets": ["registry"],
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "pod": {
        "init_containers": [{"name": "init", "env": [{"name": "AUTH_TOKEN", "value": "zzz"}, {"name": "A", "value": "b"}]}]
    },
}


def test_spec_is_redacted_by_field():
    redacted, env = Redactor().value(SPEC), SPEC["env"]
    assert isinstance(env, dict)
    assert redacted["command"] == [
        *("python", "train.py", "--token", REDACTED, "--tokenizer", "gpt2", f"--api-key={REDACTED}", "--user", REDACTED)
    ]
    hidden = {"DB_PASS": REDACTED, "PIN_PASSWORD": REDACTED, "URL": f"postgres://me:{REDACTED}@db/x"}
    assert redacted["env"] == dict(env) | hidden
    assert redacted["pod"]["init_containers"][0]["env"] == [
        {"name": "AUTH_TOKEN", "value": REDACTED},
        {"name": "A", "value": "b"},
    ]
    unchanged = ("name", "train", "pull_secrets", "tolerations")
    assert {key: redacted[key] for key in unchanged} == {key: SPEC[key] for key in unchanged}


def test_data_of_a_kubernetes_secret_is_redacted():
    manifest = {"kind": "Secret", "metadata": {"name": "a"}, "data": {"x": "YQ=="}, "stringData": {"y": "b"}}
    assert Redactor().value(manifest) == manifest | {"data": {"x": REDACTED}, "stringData": {"y": REDACTED}}


def test_known_secret_is_redacted_wherever_it_stands():
    secrets = collect_secrets(SPEC)
    assert {"hunter2", "12345678", "s3cr3t", "zzz", "abc1", "xyz7", "me:pw99"} <= secrets
    redactor = Redactor(secrets)
    assert redactor.text("connect failed: hunter2, 12345678x, s3cr3t") == f"connect failed: {REDACTED}, {REDACTED}x, {REDACTED}"
    assert redactor.text("zzz hunter22 abc12") == "zzz hunter22 abc12"  # too short, or a part of another word
    assert redactor.value({"message": ["bad: hunter2"]}) == {"message": [f"bad: {REDACTED}"]}


@pytest.mark.parametrize("form", ['a+b/c d"e', "a%2Bb%2Fc%20d%22e", json.dumps('a+b/c d"e')])
def test_encoded_known_secret_is_redacted(form):
    assert "c" not in Redactor(['a+b/c d"e']).text(form).replace(REDACTED, "")


def test_lines_of_a_known_secret_are_redacted():
    redactor = Redactor(["first line of a secret\nsecond line of a secret"])
    assert redactor.text("second line of a secret") == REDACTED


def test_redaction_is_stable():
    for text, secret in TEXTS:
        once = Redactor().text(text.format(secret))
        assert Redactor().text(once) == once


@pytest.mark.parametrize("name", ["PASSWORD", "HF_TOKEN"])
@pytest.mark.parametrize("value", ["true", "None", "", "$(X)", "${X}", "/run/secret/token", "***"])
def test_harmless_value_of_a_secret_name_stays(name, value):
    assert find_secret(value, name) is None
    assert Redactor().value({"env": {name: value}}) == {"env": {name: value}}


def test_base64_secret_that_starts_with_a_slash_is_redacted():
    secret = "/JalrXUtnFEMI7K7MDENGObPxRfiCYEXAMPLEKEY"  # noqa: S105
    assert find_secret(secret, "AWS_SECRET_ACCESS_KEY")


SHAPES = [pytest.param(shape, id=f"{shape.kind} {shape.mark}") for shape in TOKEN_SHAPES]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("text", ["{}", "using {} now", "token-{}.", "x\n{}\ny", "('{}')", "https://x/{}?a"])
def test_token_is_redacted_by_its_shape(shape, text):
    token = shape.example
    assert token not in Redactor().text(text.format(token))
    assert find_secret(text.format(token)) == shape.kind
    assert shape.mark in token
    assert shape.pattern.fullmatch(token)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("end", ["", "...", "…", "\n"], ids=ascii)
def test_no_part_of_a_token_ends_a_text_that_was_cut(shape, end):
    token, text = shape.example, "step 5 loss: 2.3 " * 20
    prefix = next(size for size in range(len(token) + 1) if re.fullmatch(shape.cut, token[:size])) - 1
    for size in range(prefix + 1, len(token) + 1):
        redacted = Redactor().text(text + token[:size] + end)
        assert redacted.startswith(text + REDACTED)
        rest = redacted.removeprefix(text + REDACTED).partition("-----END ")
        assert rest[0] in {"", end}
    assert prefix < len(token) / 2 or "://" in token or "BEGIN" in token


@pytest.mark.parametrize("shape", SHAPES)
def test_token_within_a_word_is_redacted_after_something_invisible(shape):
    assert Redactor().text(f"name\u200b{shape.example}") == f"name\u200b{REDACTED}"


PASSWORDS = [
    "$uper5ecret!x9",
    "$ecret5word!",
    "$ecretPa55!",
    "$P4ss",
    "<x>y9!pass",
    "{{a}}b9!pass",
    "id=a,b!9",
    "$(X)y9!",
    "${X}y9!",
]


@pytest.mark.parametrize("password", PASSWORDS)
def test_password_that_begins_as_a_variable_is_redacted(password):
    texts = [
        f"DB_PASSWORD={password}",
        f"curl -u bob:{password}",
        f"train.py --db-password {password}",
    ]
    for text in texts if "," not in password else texts[1:2]:
        assert password not in Redactor().text(text)
    for value in ({"name": "DB_PASSWORD", "value": password}, {"env": {"DB_PASSWORD": password}}, ["--db-password", password]):
        assert password not in json.dumps(Redactor().value(value))
    assert find_secret(password, "DB_PASSWORD")


@pytest.mark.parametrize("password", [password for password in PASSWORDS if "<" not in password])
def test_password_of_a_url_that_begins_as_a_variable_is_redacted(password):
    assert password not in Redactor().text(f"postgres://u:{password}@h/x")
    assert find_secret(f"postgres://u:{password}@h/x") == "a password in a URL"


def test_password_that_is_the_default_of_a_variable_is_redacted():
    assert find_secret("${DB_PASSWORD:-hunter2}", "DB_PASSWORD")


REFERENCES = [
    "$TOKEN",
    "$token",
    "$(A)/$(B)",
    "${A}:${B}",
    "$A-$B",
    "${A:-}",
    "${A:?set A}",
    "${A:-$B}",
    "<your token>",
    "$HOME/.ssh/key",
]


@pytest.mark.parametrize("value", [*REFERENCES, "{{ .Values.token }}", "id=hf,src=token.txt", REDACTED])
def test_reference_to_a_secret_stays(value):
    assert find_secret(value, "HF_TOKEN") is None
    assert Redactor().value({"env": {"HF_TOKEN": value}}) == {"env": {"HF_TOKEN": value}}
