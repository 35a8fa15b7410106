"""Redaction hides the whole value of a secret in every notation, and ordinary training output stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfjob.redaction import REDACTED, Redactor, cut_text
from kfjob.redaction.names import Strength, rate_name

NAMES = st.sampled_from(["DB_PASSWORD", "password", "HF_TOKEN", "hf-token", "apiKey", "API_KEYS", "access.token", "MYSQL_PWD"])
SEPARATORS = st.sampled_from(["=", "  =  ", " : ", ": ", " -> ", "->", " => ", " == ", ":=", "\t=\t", "=" + 50 * " "])
PIECES = st.sampled_from([*"aZ9.,;:&/@!#$%^*()+<>?|~-_=[]{}"])
VALUES = st.text(alphabet=PIECES, min_size=2, max_size=8).map(lambda text: f"p4ss{text}w0rd")
QUOTES = st.sampled_from(["{}", "'{}'", '"{}"', "b'{}'", '\\"{}\\"', "['{}', '{}']", '{{"a": "{}", "b": ["{}"]}}', '"""{}"""'])
PLACES = st.sampled_from(
    ["{}", "step 5 {}", "{{'a': 1, {}", 'export "{}"', "-e {} x", "({}", "\u2502 {} \u2502", "[rank0]: {}"]
)


@given(NAMES, SEPARATORS, VALUES, QUOTES, PLACES)
def test_whole_value_is_redacted(name, separator, value, quotes, place):
    text = place.format(name + separator + quotes.replace("{}", value).replace("{{", "{").replace("}}", "}"))
    redacted = Redactor().text(text)
    assert "p4ss" not in redacted, text
    assert "w0rd" not in redacted, text
    assert name in redacted


@given(st.text(alphabet=st.sampled_from([*"aZ9.,;:&/@!#$%<>'\"?|~-_=[]{}"]), min_size=1, max_size=8))
def test_whole_password_of_a_url_is_redacted(text):
    for place in ("{}", "url={} x", "cannot reach {}: refused"):
        redacted = Redactor().text(place.format(f"postgres://me:p4ss{text}w0rd@db.example:5432/x"))
        assert "p4ss" not in redacted
        assert "w0rd" not in redacted


TEXTS = [
    ("Authorization: Token {}", "p4ss"),
    ("Authorization: Foo {}", "p4ss"),
    ('Authorization: Digest username="me", realm="p4ss", response="{}"', "p4ss"),
    ("Proxy-Authorization: Basic {}", "p4ss="),
    ("{{'Authorization': 'Token {}', 'Accept': '*/*'}}", "p4ss w0rd"),
    ('curl -H "Authorization: Token {}" https://x', "p4ss w0rd"),
    ("Cookie: a=b; session={}", "p4ss; c=d"),
    ("Set-Cookie: sid={}; Path=/", "p4ss"),
    ("Server=h;User Id=u;Pwd={};Timeout=5", "p4ss"),
    ("Server=h;Password={};Timeout=5", "p4,ss"),
    ("Driver={{ODBC}};Pwd={{{}}};x=1", "p4ss"),
    ("train.py --password {}", "p4ss"),
    ("train.py --password={} --lr 1", "p4ss,w0rd;x"),
    ("['train.py', '--password', '{}']", "p4ss w0rd"),
    ("docker login -u me -p {} host", "p4ss"),
    ("sshpass -p {} ssh -p 22 host", "p4ss"),
    ("sshpass -p'{}' ssh host", "p4ss w0rd"),
    ("mysql -u root -p{} db", "p4ss"),
    ("curl -u user:{} https://x", "p4ss:w0rd"),
    ('curl -u "user:{}" https://x', "p4ss w0rd"),
    ("['curl', '-u', 'user:{}']", "p4ss w0rd"),
    ("machine h login u password {}", "p4ss"),
    ("machine h\nlogin u\npassword {}", "p4ss"),
    ("db.example:5432:train:me:{}", "p4ss"),
    ("*:*:*:me:{}", "p4ss"),
    ("me:{}@tcp(db:3306)/x", "p4ss/w0rd"),
    ("os.environ['DB_PASSWORD'] = '{}'", "p4ss"),
    ('password: str = "{}"', "p4ss"),
    ("password = token = '{}'", "p4ss"),
    ("DB_PASSWORD='{}", "p4ss w0rd"),
    ("DB_PASSWORD='p4'\"'\"'{}'", "ss w0rd"[:2]),
    ("PASSPHRASE={}", "correct horse battery"),
    ("API key: {}", "abcdef"),
    ("private_key: |\n  {}\nloss: 2", "p4ss\n  w0rd"),
    ("password:\n  {}", "p4ss"),
    ("tokens: ['{}', '5']", "p4ssw0rd"),
    ("{{'credentials': {{'user': '{}', 'n': {{'x': '{}'}}}}}}", "p4ss"),
    ("dBpAsSwOrD={}", "p4ss"),
    ("A" * 200 + "_PASSWORD={}", "p4ss"),
]


@pytest.mark.parametrize(("text", "secret"), TEXTS)
def test_secret_in_a_notation_is_redacted(text, secret):
    redacted = Redactor().text(text.format(secret, secret))
    assert secret not in redacted
    assert not any(part in redacted for part in ("p4ss", "w0rd"))
    assert REDACTED in redacted
    assert Redactor().text(redacted) == redacted


MESSAGES = """
failed calling webhook "x": failed to call webhook: Post "https://x.svc:443/mutate"
webhook: connection refused
Error: webhook: connection refused: dial tcp 10.0.0.1:443
api_key: not set
api_key: Not set (run `wandb login`)
ValueError: api_key: must be set
wandb: ERROR api_key: invalid
login failed: password: incorrect
password: must be at least 8 characters
psql: password: authentication failed for user "x"
HF_TOKEN: please log in with `huggingface-cli login`
{"message": "api_key: not set"}
python -u train.py:5
python -u train.py:main --lr 1
"""


@pytest.mark.parametrize("line", MESSAGES.strip().splitlines())
def test_message_about_a_secret_stays(line):
    assert Redactor().text(line) == line


def test_script_after_u_stays_in_an_argv():
    assert Redactor().value(["python", "-u", "train.py:5"]) == ["python", "-u", "train.py:5"]


WORDS = """
password: letmein
  password: letmein
password: hunter2x
error: password: letmein
user: bob password: letmein
password: letmein user: bob
connect with password: letmein failed
[rank0]: password: Letmein is used
{password: letmein}
(password: letmein)
"password": "letmein"
"password": "letmein", "a": "b c"
DB_PASSWORD=letmein
DB_PASSWORD=letmein was used
DB_PASSWORD: letmein
api_key=letmein was used
"api_key": "letmein please"
'api_key': 'letmein'
api_key: letmein
api_key: "letmein please"
api_key: letmein user=bob
api_key: letmein2 is used
webhook: https://x.example/letmein
curl -u train:letmein https://x
curl -u "train:letmein" https://x
client_secret: letmein and more
--api-key: letmein
"""


@pytest.mark.parametrize("line", WORDS.strip("\n").splitlines())
def test_word_that_may_be_a_secret_is_redacted(line):
    redacted = Redactor().text(line)
    assert not any(word in redacted for word in ("letmein", "Letmein", "hunter2x"))
    assert REDACTED in redacted


KEY_BODY = ("MIIEpAIBAAKCAQEA7v3Zy8xQm2Lr5tKcW9dHnJfGbPsUoYeTaRiXwVzNkMlCqDhB", "u1s9k2Lm+Qz/7Yx3Wv==")
PLAIN_KEY = "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *KEY_BODY, "-----END RSA PRIVATE KEY-----"])
LOCKED_KEY = PLAIN_KEY.replace("KEY-----\nMII", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0A1B2C3D4E5F\n\nMII")
KEYS = [PLAIN_KEY, LOCKED_KEY, PLAIN_KEY.replace("RSA", "EC"), PLAIN_KEY.replace("RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK")]


@pytest.mark.parametrize("key", KEYS)
def test_private_key_is_redacted_in_one_text_and_line_by_line(key):
    before, after = "loading the key", "step 5 loss: 2.3"
    assert Redactor().text(f"{before}\n{key}\n{after}") == f"{before}\n{REDACTED}\n{after}"
    literal = key.replace("\n", "\\n")
    assert Redactor().text(f'key = "{literal}" ok') == f'key = "{REDACTED}" ok'
    lines = Redactor().lines()
    redacted = [lines.line(line) for line in (before, *key.splitlines(), after)]
    assert redacted == [before, *[REDACTED] * len(key.splitlines()), after]
    assert Redactor().value([before, *key.splitlines(), after]) == redacted


def test_lines_of_a_key_with_the_prefix_of_a_log_tool_are_redacted():
    lines = Redactor().lines()
    text = "\n".join(lines.line(f"[rank0]: {line}") for line in LOCKED_KEY.splitlines())
    assert not any(part in text for part in (*KEY_BODY, "0A1B2C"))


def test_key_without_an_end_is_redacted_to_the_end_and_not_after_it():
    assert KEY_BODY[0] not in Redactor().text(PLAIN_KEY.partition("-----END")[0])
    assert KEY_BODY[0] not in Redactor().text(f"file: {KEY_BODY[0]}")
    lines = Redactor().lines()
    lines.line("-----BEGIN RSA PRIVATE KEY-----")
    assert lines.line("step 5 loss: 2.3 lr: 0.1") == "step 5 loss: 2.3 lr: 0.1"


VALUES_OF_JSON = [
    {"password": ["p4ss", "w0rd"]},
    {"credentials": {"user": "p4ss", "list": [{"x": "w0rd"}]}},
    {"API_KEYS": ["p4ss"]},
    {"DB_PASS\u200bWORD": "p4ss"},
    {"password": {"key": "p4ss"}},
    {"ＰＡＳＳＷＯＲＤ": "p4ss"},
    {"env": {"API_KEYS": "p4ss,w0rd"}},
    ["docker", "login", "-u", "me", "-p", "p4ss"],
    ["sshpass", "-p", "p4ss", "ssh", "-p", "22"],
    {"password": 1234567},
]


@pytest.mark.parametrize("value", VALUES_OF_JSON, ids=str)
def test_every_text_under_the_name_of_a_secret_is_redacted(value):
    text = str(Redactor().value(value))
    assert not any(part in text for part in ("p4ss", "w0rd", "1234567"))
    assert REDACTED in text


def test_reference_to_a_kubernetes_secret_stays_in_json():
    value = {"HF_TOKEN": {"secret": "hf", "key": "token"}, "a": {"valueFrom": {"secretKeyRef": {"name": "hf", "key": "t"}}}}
    assert Redactor().value({"env": value}) == {"env": value}


ORDINARY = """
max_tokens=2048 pad_token=<pad> eos_token='</s>' tokenizer=gpt2 loss: 2.3
tokens: 1.2M total_tokens=1.5B seen_tokens: 300k train_tokens = 1e9 tokens: 12,345,678
tokens: 1234567/9999999 tokens: 5 of 10
key=value metrics: key=loss value=2.3 sort_key=loss
Key error
KeyError: 'loss'
token/s 431 tokens/s: 431.2 tok/s 431
pass 3 of 5
pass: 3/5 pass=12 passes=3
Pass 3: loss 2.3
tokenizer=AutoTokenizer.from_pretrained('gpt2')
tokenizer: GPT2TokenizerFast(name_or_path='gpt2', vocab_size=50257)
special_tokens={'pad_token': '<pad>', 'eos_token': '</s>'} additional_special_tokens=['<|im_start|>', '<|im_end|>']
missing_keys: ['model.layers.0.weight', 'lm_head.weight'] unexpected_keys=[]
unexpected keys: ["model.layers.10.self_attn.rotary_emb.inv_freq"]
keys: ['loss', 'lr', 'step1'] Loading keys: model.safetensors.index.json
step 10 loss=2.31 key padding mask: torch.Size([8, 512])
{'loss': 2.31, 'num_tokens': 123456.0, 'mean_token_accuracy': 0.61, 'tokens_per_sec': 51234.5}
100%|██████████| 10/10 [00:10<00:00, 1.00it/s, loss=2.31, tokens=1.2e+06]
2026-11-21 07:10:48 I [train.py:18] Step 10 tokens/s: 51234, grad norm: 0.5, peak memory: 10.1 GiB
passed=5 failed=0 first_token: 1234 time_to_first_token=0.3
http://host:8080/a@b tcp://10.0.0.1:29500 grpc://a.b.c:50051/x https://user.github.io/a:b
docker://reg.io:5000/img@sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef
git+https://github.com/a/b@v1.2#egg=c
ssh -p 22 host
python -p 5 train.py
login succeeded for user me, mkdir -p out
12:34:56:78:90
worker0:29500:store:1:ok
00:1b:44:11:3a:b7
authorization: failed for user system:serviceaccount:default:trainer
password authentication failed for user "x"
password required
authentication: none, auth=none
basic training started with 8 GPUs
pwd: /workspace/run1 PWD=/root/x1
image_pull_secrets: [registry] make_pull_secret: true
HF_TOKEN: {secret: hf, key: token}
vocab key/value cache: 5 GiB, kv_cache_key
"""


@pytest.mark.parametrize("line", ORDINARY.strip().splitlines())
def test_ordinary_output_stays(line):
    assert Redactor().text(line) == line


@pytest.mark.parametrize(
    ("name", "strength"), [("tokens", 1), ("MAX_TOKENS", 0), ("API_KEYS", 2), ("pad_tokens", 0), ("Pwd", 3)]
)
def test_name_tells_how_likely_a_secret_is(name, strength):
    assert rate_name(name) == Strength(strength)


def test_cut_text_shows_no_part_of_a_secret():
    for position in range(8, 60):
        assert "p4ss" not in cut_text(f"{'a ' * 20}postgres://me:p4ssw0rd@db {'b ' * 20}", position + 14)
        assert "wor" not in cut_text(f"{'a ' * 20} ordinary-words {'b ' * 20}", 44 + position % 10)
    assert cut_text("a" * 300, 200) == "a" * 200


@pytest.mark.parametrize(
    "line",
    [
        "PASSWORD_DB=tomato-soup-55",
        "HF_TOKEN_READ=tomato-soup-55",
        "OPENAI_API_KEY_BACKUP=tomato-soup-55",
        "SECRET_ROOT=tomato-soup-55",
        '{"name": "DB_PASSWORD", "value": "tomato-soup-55"}',
        r"""{\"name\": \"HF_TOKEN\", \"value\": \"tomato-soup-55\"}""",
        "EnvVar(name='DB_PASSWORD', value='tomato-soup-55')",
        "- name: PASSWORD\n  value: tomato-soup-55",
        '<add key="password" value="tomato-soup-55"/>',
    ],
)
def test_secret_of_a_variable_is_redacted_in_every_notation(line):
    assert "tomato" not in Redactor().text(line)


@pytest.mark.parametrize(
    "line",
    [
        "PASSWORD_MIN_LENGTH=8 TOKEN_LIMIT=4096a1 NUM_TOKEN_SHARDS=8",
        "SECRET_NAME=hub-token1 PASSWORD_FILE=/run/secrets/x1",
        '{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}',
        "key: lr value: 0.1, token value: 5",
    ],
)
def test_variable_about_a_secret_stays(line):
    assert Redactor().text(line) == line
