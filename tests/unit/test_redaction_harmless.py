"""Redaction keeps the lines that training programs, their configurations and Kubernetes print every day."""

from __future__ import annotations

import pytest

from kfjob.redaction import Redactor, collect_secrets, find_secret

ARGUMENTS = """
metric_key=accuracy
best_metric_key='val_loss'
model_key: llama
dataset_key=squad
text_key: content
label_key=label
image_key: jpg
caption_key: txt
input_key: prompt
prompt_key: question
state_key: optimizer
optim_key: adamw
store_key: rank0
--label_key label
--label-key=label
Namespace(image_key='jpg', text_key='txt', lr=0.1)
separator_token: ###
response_token: assistant
--csv-img-key filepath --csv-caption-key title --csv-separator ,
open_clip_train.main --csv-img-key=image1 --csv-caption-key=caption2
train-data: s3://b/{00..99}.tar, image_key: jpg;png;webp, caption_key: txt
wds.to_tuple(image_key="jpg;png", label_key="cls", meta_key="json")
WebDataset(key_key='__key__', url_key='__url__')
data.prompt_key=prompt data.reward_fn_key=data_source data.image_key=images data.video_key=videos
data.response_key: answer1
data.response_dict_keys: ['answer']
reward_model.reward_key: score2
actor_rollout_ref.rollout.val_kwargs.key=greedy
DataConfig(prompt_key='problem', answer_key='answer', reward_fn_key='data_source')
dataset_text_field='text', dataset_prompt_key='instruction', dataset_chosen_key='chosen'
SFTConfig(eos_token='<|im_end|>', pad_token='<|endoftext|>', response_token='<|assistant|>')
instruction_token: [INST]
response_template_token: assistant2
chat_start_token: <|im_start|>
thinking_token=<think> tool_token=<tool_call>
image_token=<image> video_token=<video> boi_token=<boi>
suffix_token: suf1 prefix_token: pre1 middle_token: mid1
decoder_start_token: bos1
lang_token: en_XX
word_delimiter_token='|'
mask_token_key: special1
unk_token: [UNK] cls_token: [CLS] sep_token: [SEP]
monitor_key: val/loss
monitor_key=val_acc1
checkpoint_key: state_dict
ckpt_key=model_ema
state_dict_key: module2
ema_key: ema_model
resume_key: epoch_12
optimizer_key=fused_adam8bit
scheduler_key: cosine
batch_key: input_ids
feature_key=pixel_values
target_key: labels1
output_key: logits
loss_key=loss_ce
timestamp_key: ts
audio_key: flac16k
video_key: mp4
depth_key: depth_map
mask_key: seg1
meta_key: json
id_key: uid
user_key: user1
role_key: role, content_key: content
sample_key: sample_0001
column_key=col_12
language_key: en-US
task_key=mmlu_5shot
eval_key: gsm8k
reward_key: math_500
dataset.text_key=text dataset.name=c4 trainer.devices=8
cfg.model_key = "resnet50d.ra2_in1k"
timm: model_key=vit_base_patch16_224.augreg2_in21k_ft_in1k
+experiment.model_key=llama3-8b-instruct
hydra.sweep_key: seed1
{'image_key': 'jpg', 'text_key': 'txt', 'num_workers': 8}
{"label_key": "label", "metric_key": "f1_macro"}
{"image_key": "image_512x512", "caption_key": "caption_v2"}
model_args: {'tokenizer_key': 'llama3', 'dtype_key': 'bf16'}
ModelArguments(model_key='Llama3Instruct8BSftDpoV2', lr=1e-5)
DataArguments(text_key='text', train_file='c4.json')
omegaconf.errors.ConfigKeyError: Key 'image_key' is not in struct
full_key: data.image_key
KeyError: 'label_key'
Unrecognized configuration parameter "foo_key"
forward_pass: eager
backward_pass: 12.3ms
fusion_pass=triton
model_signature: forward1
kernel_signature=add_f32x4
kernel_signature: *fp32,*fp32,i32
sort_keys=True missing_keys=['a1b2c3d4']
unexpected_keys: layer12
metric_keys: accuracy5
batch_keys=['input_ids', 'labels1']
image_tokens: clip336
num_image_tokens=576 visual_tokens: 2x2pool
text_tokens: bpe32k
label_keys = ("label1", "label2")
input_keys: input1,input2
"""
ORDINARY = """
Basic ResNet50Block1 created
basic AdamW8bit
precision: basic bf16-mixed1
basic a100-80gb-8x
Using Basic LlamaDecoderLayer2 blocks
basic checkpoint1 loaded
BasicBlock2 basic resnet18d
Basic TransformerEngine2 backend
rank0:1234:step_5:loss:2.31
h100:8192:tok:gpu0:93.1%
node1:4096:ctx:layer3:ok1
gpu0:1024:mem:peak:71.2GiB
worker1:2048:seq:len:4096
a100:8192:bf16:tp:8x
model hf_Llama3Instruct8BSftDpoV2Final
hf_hub_download hf_transfer1 hf_text_generation_inference2
model hf_mistral7binstructv02sftfinalmerged2
task-sk-abcdefghijklmnopqrstuvwxyz
sk-learn-random-forest-classifier-v2
task-sk-learn-gradient-boosting-2024-run
token=t5-base-v1
token: bert-base-uncased
token=qwen2-7b-instruct
srun -u bob:partition1
srun -N 2 -u bob:partition1 python train.py
sudo -u bob:staff1 make
docker run -u 1000:1000 image1
docker run --user app1:group1 image1
kubectl exec -it pod1 -- chown -u me:staff1
secret key: token1
MountVolume.SetUp failed for volume "hf" : references non-existent secret key: token1
Warning  FailedMount  5s  kubelet  MountVolume.SetUp failed for volume "a" : references non-existent secret key: hf-token2
using token bucket2 algorithm
using token ring2 topology
with token level2 parallelism
using key value2 cache
usage: train.py [-h] [--hf-token HF_TOKEN] [--password PASSWORD]
  --hf-token HF_TOKEN   token of the hub (default: None)
  --password PASSWORD (default: None)
  --api-key API_KEY     the key
  password (str): the password of the user
  token (str, optional): the token of the hub
  api_key (required)
Checking password ... ok
hint: set it in an env file, with `--var HF_TOKEN=…`, or export it and use `--env`
define it on an earlier line, with `--var DB_PASSWORD=…`, or export it
kubectl create secret generic db --from-literal=password=…
Loading tokens ....... done
  num_tokens ...................................... 4096
  pad_token ....................................... <pad>
  hub_token ....................................... None
  add_bos_token ................................... False
  use_auth ........................................ False
  image_key ....................................... jpg
  key_dim ......................................... 64
  tokenizer_key ................................... llama3
  hub_private_repo ................................ None
  vocab_file ...................................... /data/vocab1.json
  tokenizer_type .................................. GPT2BPETokenizer
  data_cache_path ................................. /cache1
  kv_channels ..................................... 128
  hub_token          | None
 token    | count
 password | email
token | logprob1
use_auth_token (bool): whether
tokens[0]: hello1
keys[3] = layer12a
use_auth_token (bool, optional): whether2
Loading key ... layer12
Verifying password ...... failed
hub_token (`str`, *optional*): The token to use
def change_password(self) -> None:
def read_token(name: str) -> Token2:
 id | token | text
 1  | hello | world2
 token | freq
 the1x | 12
step,token,loss
1,abc123,2.31
token_id,token,score
42,model1,0.93
SELECT token, key FROM t WHERE key = 'loss1'
SELECT api_key FROM users
CREATE TABLE t (password VARCHAR(255), token TEXT)
INSERT INTO m (key, value) VALUES ('step1', 5)
ORDER BY sort_key, metric_key
  Type:    Opaque
  token:   1024 bytes
  ca.crt:  1066 bytes
    Environment:
      HF_TOKEN:     <set to the key 'token' in secret 'hf-secret1'>  Optional: false
      WANDB_KEY:    <set to the key 'key' in secret 'wandb2'>  Optional: false
  Volumes:  SecretName: hf-token2
    Type:                    Projected (a volume that contains injected data from multiple sources)
    TokenExpirationSeconds:  3607
  Tolerations: node.kubernetes.io/not-ready:NoExecute op=Exists for 300s
  key: nvidia.com/gpu operator: Exists
  topologyKey: kubernetes.io/hostname
  secretKeyRef: {name: hf1, key: token2}
Warning  Failed  2s  kubelet  Error: couldn't find key token2 in Secret ml/hf1
NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
node1:1234:1299 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.5<0>
rank0:1234:1299 [0] NCCL INFO comm 0x55d1 rank 0 nranks 16
NCCL INFO Connected all rings, key 0x7f12a
store key worker/rank_3/barrier1
TCPStore key: default_pg/0//cuda//0
c10d store_key=rank12:grad2
DistStoreError: key torch.rendezvous.abc1.run_1 not found
Token indices sequence length is longer than 4096
Added token '<|reserved_special_token_12|>' at 128014
special token 'im_end2' is missing
tokenizer.convert_ids_to_tokens: token h3llo9
loss@step1:2.31@rank0:123
rouge:top1@k:10 map:mAP50@iou:50
worker:rank0@node1:29500
registry:5000/img1@sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef
GET /search?key=loss&step=5
GET /metrics?code=200&key=model1
http://host:6006/?key=layer12
wandb: Appending key for api.wandb.ai to your netrc file: /root/.netrc
wandb: Currently logged in as: bob (team1). Use `wandb login --relogin` to force relogin
wandb: git commit 0123456789abcdef0123456789abcdef01234567
wandb: Run data is saved locally in /w/wandb/run-20261121_071048-ab12cd34
passwords[0]: None
password (default: None)
DB_PASSWORD (from env): <unset>
hub_token [optional] = None
gsk_test xai-org ya29 SG.x hvs. dapi1 shpat_ rubygems_
SG.Linear.weight SG.module1.layer2
pplx-eval xai-grok-1 gsk_kernel_fwd_128
wandb_v1_config api_org_chart hf_oauth_callback
GOCSPX- AGE-SECRET-KEY
tskey-auth-mode
eyJust.a.name.of.module
ppl: 12.3, acc@1:0.93@5:0.99
HTTPBasicAuth('bob', password)
aiohttp.BasicAuth(user, None)
psk=8 QPSK=16 psk: 8
API key is invalid
got 401 for token refresh1 request
new token (eos)
new token (id 50256)
got token (42)
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


@pytest.mark.parametrize("name", ["image_key", "LABEL_KEY", "response_token", "--store-key"])
def test_random_value_of_an_ambiguous_name_is_redacted(name):
    secret = "Zk8vQ2mLx91b" + "Tr5WqN3d"
    assert secret not in Redactor().text(f"{name}={secret}")
    assert secret not in Redactor().text(f"train.py --{name.strip('-')} {secret}")
    assert secret not in str(Redactor().value({name: secret, "command": [f"--{name.strip('-')}", secret]}))
    assert find_secret(secret, name)


@pytest.mark.parametrize("name", ["FOO_KEY", "MYAPP_TOKEN", "BUILD_BOX_TOKEN"])
def test_any_value_of_a_variable_in_capitals_is_redacted(name):
    assert "hunter22" not in Redactor().text(f"export {name}=hunter22")
    assert "hunter22" not in str(Redactor().value({"env": {name: "hunter22"}}))
    assert collect_secrets({"env": {name: "hunter22"}}) == {"hunter22"}
    assert find_secret("hunter22", name)


@pytest.mark.parametrize(
    "line", ["LABEL_KEY=label", "EOS_TOKEN=stop", "CACHE_KEY=rows", "RESPONSE_TOKEN=assistant", "NEW_TOKENS=many"]
)
def test_variables_of_data_and_models_stay(line):
    assert Redactor().text(line) == line
