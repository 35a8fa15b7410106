"""Redaction keeps the lines that training programs, their configurations and Kubernetes print every day."""

from __future__ import annotations

import pytest

from kfjob.redaction import Redactor, collect_secrets, find_secret, is_secret_name

ARGUMENTS = """
metric_key=accuracy
best_metric_key='val_loss'
model_key: llama
--label_key label
--label-key=label
Namespace(image_key='jpg', text_key='txt', lr=0.1)
separator_token: ###
--csv-img-key filepath --csv-caption-key title --csv-separator ,
train-data: s3://b/{00..99}.tar, image_key: jpg;png;webp, caption_key: txt
wds.to_tuple(image_key="jpg;png", label_key="cls", meta_key="json")
WebDataset(key_key='__key__', url_key='__url__')
data.prompt_key=prompt data.reward_fn_key=data_source data.image_key=images data.video_key=videos
data.response_dict_keys: ['answer']
actor_rollout_ref.rollout.val_kwargs.key=greedy
SFTConfig(eos_token='<|im_end|>', pad_token='<|endoftext|>', response_token='<|assistant|>')
instruction_token: [INST]
thinking_token=<think> tool_token=<tool_call>
image_token=<image> video_token=<video> boi_token=<boi>
lang_token: en_XX
word_delimiter_token='|'
unk_token: [UNK] cls_token: [CLS] sep_token: [SEP]
monitor_key: val/loss
resume_key: epoch_12
role_key: role, content_key: content
task_key=mmlu_5shot
cfg.model_key = "resnet50d.ra2_in1k"
timm: model_key=vit_base_patch16_224.augreg2_in21k_ft_in1k
+experiment.model_key=llama3-8b-instruct
{'image_key': 'jpg', 'text_key': 'txt', 'num_workers': 8}
{"label_key": "label", "metric_key": "f1_macro"}
model_args: {'tokenizer_key': 'llama3', 'dtype_key': 'bf16'}
ModelArguments(model_key='Llama3Instruct8BSftDpoV2', lr=1e-5)
omegaconf.errors.ConfigKeyError: Key 'image_key' is not in struct
KeyError: 'label_key'
Unrecognized configuration parameter "foo_key"
forward_pass: eager
backward_pass: 12.3ms
fusion_pass=triton
model_signature: forward1
kernel_signature: *fp32,*fp32,i32
sort_keys=True missing_keys=['a1b2c3d4']
batch_keys=['input_ids', 'labels1']
image_tokens: clip336
num_image_tokens=576 visual_tokens: 2x2pool
label_keys = ("label1", "label2")
"""
ORDINARY = """
tokens per second: 12
tokenizer: gpt2
token 5 of 10
step 10 loss=2.31 tokens/s: 51234 key=model.layers.0.weight
Missing key: model.layers.0.self_attn.k_proj.weight
tokens: 1.2M total_tokens=1.5B train_tokens = 1e9 tokens: 12,345,678
tokens: 1234567/9999999 tokens: 5 of 10
pass: 3/5 pass=12 passes=3
special_tokens={'pad_token': '<pad>', 'eos_token': '</s>'} additional_special_tokens=['<|im_start|>', '<|im_end|>']
missing_keys: ['model.layers.0.weight', 'lm_head.weight'] unexpected_keys=[]
key padding mask: torch.Size([8, 512])
2026-11-21 07:10:48 I [train.py:18] Step 10 tokens/s: 51234, grad norm: 0.5, peak memory: 10.1 GiB
python train.py --tokenizer gpt2 --max-tokens 4096 --num-key-value-heads 8 --key-dim 64 --token-budget 100
https://github.com/pytorch/pytorch/issues/1 and git@github.com:a/b.git and ssh://git@github.com/a
http://host:8080/a@b tcp://10.0.0.1:29500 grpc://a.b.c:50051/x https://user.github.io/a:b
docker://reg.io:5000/img@sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef
commit 0123456789abcdef0123456789abcdef01234567
token=None api_key=null password: ${DB_PASSWORD} secret=$(S)
GOOGLE_APPLICATION_CREDENTIALS=/var/run/secrets/gcp.json HF_TOKEN_PATH=/run/token
signature: forward(x) -> Tensor
basic operations, bearer authentication
password authentication failed for user "x"
pwd: /workspace/run1 PWD=/root/x1 auth=none author=me
image_pull_secrets: [registry] make_pull_secret: true
HF_TOKEN: {secret: hf, key: token}
webhook: connection refused
failed calling webhook "x": failed to call webhook: Post "https://x.svc:443/mutate"
MountVolume.SetUp failed for volume "hf-token" : secret "hf-token" not found
MountVolume.SetUp failed for volume "api-key" : failed to sync secret cache: timed out waiting for the condition
model hf_Llama3Instruct8BSftDpoV2Final
hf_hub_download hf_transfer1 hf_text_generation_inference2
task-sk-abcdefghijklmnopqrstuvwxyz
task-sk-learn-gradient-boosting-2024-run
token=qwen2-7b-instruct
secret key: token1
MountVolume.SetUp failed for volume "hf" : references non-existent secret key: token1
Warning  FailedMount  5s  kubelet  MountVolume.SetUp failed for volume "a" : references non-existent secret key: hf-token2
usage: train.py [-h] [--hf-token HF_TOKEN] [--password PASSWORD]
  --hf-token HF_TOKEN   token of the hub (default: None)
  --api-key API_KEY     the key
hint: set it in an env file, with `--var HF_TOKEN=…`, or export it and use `--env`
define it on an earlier line, with `--var DB_PASSWORD=…`, or export it
kubectl create secret generic db --from-literal=password=…
  num_tokens ...................................... 4096
  hub_token ....................................... None
  use_auth ........................................ False
  tokenizer_key ................................... llama3
tokens[0]: hello1
keys[3] = layer12a
def change_password(self) -> None:
def read_token(name: str) -> Token2:
  Type:    Opaque
  token:   1024 bytes
    Environment:
      HF_TOKEN:     <set to the key 'token' in secret 'hf-secret1'>  Optional: false
      WANDB_KEY:    <set to the key 'key' in secret 'wandb2'>  Optional: false
  Volumes:  SecretName: hf-token2
  Tolerations: node.kubernetes.io/not-ready:NoExecute op=Exists for 300s
  key: nvidia.com/gpu operator: Exists
  topologyKey: kubernetes.io/hostname
  secretKeyRef: {name: hf1, key: token2}
Warning  Failed  2s  kubelet  Error: couldn't find key token2 in Secret ml/hf1
NCCL INFO Connected all rings, key 0x7f12a
store key worker/rank_3/barrier1
c10d store_key=rank12:grad2
DistStoreError: key torch.rendezvous.abc1.run_1 not found
Token indices sequence length is longer than 4096
special token 'im_end2' is missing
tokenizer.convert_ids_to_tokens: token h3llo9
wandb: Currently logged in as: bob (team1). Use `wandb login --relogin` to force relogin
passwords[0]: None
DB_PASSWORD (from env): <unset>
wandb_v1_config api_org_chart hf_oauth_callback
eyJust.a.name.of.module
API key is invalid
"""


@pytest.mark.parametrize("line", ARGUMENTS.strip("\n").splitlines())
@pytest.mark.parametrize("place", ["{}", "[rank0]: {}"])
def test_arguments_of_training_programs_stay(line, place):
    text = place.format(line)
    assert Redactor().text(text) == text


@pytest.mark.parametrize("line", ORDINARY.strip("\n").splitlines())
def test_ordinary_line_stays(line):
    assert Redactor().text(line) == line


def test_ambiguous_names_stay_in_json_and_in_specs():
    value = {
        "image_key": "jpg",
        "env": {"LABEL_KEY": "label", "RESPONSE_TOKEN": "assistant2"},
        "command": ["train.py", "--label-key", "label", "--caption_key", "txt"],
    }
    assert Redactor().value(value) == value
    assert not collect_secrets(value)
    assert find_secret("label", "LABEL_KEY") is None


ORDINARY_NAMES = """
tokenizer max_tokens MAX_TOKENS key_value_heads TOKENIZERS_PARALLELISM eos_token pad_token bos_token_id num_tokens KEY_COUNT
tokens_per_second keyboard primary_key cache_key PUBLIC_KEY passes bypass compass PWD OLDPWD SECRET_NAME TOKEN_FILE token_path
AWS_ACCESS_KEY_ID monkey author authority key_dim PASS_COUNT tokenizer_name attention_key_size SSH_AUTH_SOCK topologyKey tokens
"""


@pytest.mark.parametrize("name", ORDINARY_NAMES.split())
def test_ordinary_name_is_no_secret(name: str):
    assert not is_secret_name(name)


REFERENCES = """
true None $(X) ${X} /run/secret/token *** $TOKEN $token $(A)/$(B) ${A}:${B} $A-$B ${A:-} $HOME/.ssh/key [redacted]
"""


@pytest.mark.parametrize("name", ["PASSWORD", "HF_TOKEN"])
@pytest.mark.parametrize("value", [*REFERENCES.split(), "", "${A:?set A}", "<your token>", "{{ .Values.token }}", "$(cat /x)"])
def test_reference_under_the_name_of_a_secret_stays(name: str, value: str):
    assert find_secret(value, name) is None
    assert Redactor().value({"env": {name: value}}) == {"env": {name: value}}


def test_reference_to_a_kubernetes_secret_stays_in_json():
    value = {"HF_TOKEN": {"secret": "hf", "key": "token"}, "a": {"valueFrom": {"secretKeyRef": {"name": "hf", "key": "t"}}}}
    assert Redactor().value({"env": value}) == {"env": value}


@pytest.mark.parametrize(
    "line", ["LABEL_KEY=label", "EOS_TOKEN=stop", "CACHE_KEY=rows", "RESPONSE_TOKEN=assistant", "NEW_TOKENS=many"]
)
def test_variables_of_data_and_models_stay(line):
    assert Redactor().text(line) == line
