"""Names that other programs use for the fields of a job spec, as tables.

The names are those of Kubernetes and the training operator, torchrun, Slurm, SkyPilot, TorchX, and the trainers of Hugging
Face, Lightning, DeepSpeed, torchtitan and nanoGPT. A test proves that every field in the table exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType

from kfjob.base.text import snake_case

_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "name": "job_name jobname title",
        "project": "project_name",
        "experiment": "experiment_name run_name",
        "image": "docker_image container_image container image_uri image_id docker",
        "image_pull_policy": "pull_policy",
        "image_pull_secrets": "pull_secret pull_secrets image_pull_secret",
        "nodes": "num_nodes node_count number_of_nodes workers worker num_workers worker_replicas num_replicas replica_count "
        "num_machines parallelism completions nodes_count n_nodes",
        "processes_per_node": "nproc ntasks_per_node tasks_per_node num_processes num_proc_per_node num_proc nproc_per_replica",
        "instance": "instance_type instance_types machine_type node_type vm_type",
        "resources.gpus": "gpu gpus_per_node gpu_per_node gpu_count num_gpus n_gpus gpus_per_task gpus_per_replica gres "
        "accelerators accelerator accelerator_count nvidia_com_gpu num_gpu",
        "resources.cpu": "cpus cpus_per_task cpu_count num_cpus vcpus cores cpus_per_node",
        "resources.memory": "mem mem_per_node ram memory_mb mem_mb memory_gb",
        "resources.efa": "efa_per_node efas vpc_amazonaws_com_efa",
        "resources.limits": "resource_limits",
        "resources.requests": "resource_requests",
        "resources": "resource",
        "elastic.min": "min_nodes min_replicas min_nnodes min_workers",
        "elastic.max": "max_nodes max_replicas max_nnodes max_workers",
        "elastic": "elastic_policy autoscale autoscaling",
        "rendezvous": "rdzv rendez_vous",
        "rendezvous.port": "master_port rdzv_port main_process_port",
        "env": "envs environ environment environment_variables env_vars vars variables",
        "volumes": "volume mounts mount volume_mounts file_mounts storage_mounts pvcs",
        "shared_memory": "shm shm_size shmem dshm",
        "restarts.policy": "restart_policy",
        "restarts.max": "restart retries max_retries num_retries max_restart requeue",
        "run.deadline": "active_deadline_seconds timeout time time_limit walltime max_run_time max_runtime timeout_seconds "
        "max_duration",
        "run.ttl": "ttl_seconds_after_finished ttl_seconds time_to_live",
        "run.clean_pods": "clean_pod_policy clean_pods_policy",
        "run.suspend": "suspended paused",
        "scheduling.queue": "queue_name partition local_queue cluster_queue kueue_queue",
        "scheduling.priority_class": "priority priority_class_name",
        "scheduling.scheduler": "scheduler_name",
        "scheduling.node_selector": "node_selectors node_labels constraint nodelist",
        "scheduling.tolerations": "toleration taints",
        "scheduling.spread": "topology_spread_constraints topology_spread",
        "service_account": "service_account_name serviceaccount",
        "pod.working_dir": "workdir working_dir work_dir workingdir working_directory cwd chdir",
        "pod.grace": "termination_grace_period_seconds grace_period terminate_grace_period",
        "pod.init_containers": "init_container",
        "pod.sidecars": "sidecar containers",
        "train": "trainer training train_args training_args",
        "train.model": "model_name_or_path model_path pretrained_model_name_or_path base_model model_id",
        "train.model_revision": "revision",
        "train.data": "dataset dataset_name train_data train_file training_data data_path data_dir dataset_dir train_path "
        "data_root",
        "train.data_config": "dataset_config dataset_config_name dataset_subset data_name subset",
        "train.data_split": "split train_split dataset_split",
        "train.validation": "validation_file val_data eval_data validation_data eval_file val_file eval_dataset val_dataset",
        "train.validation_split": "eval_split val_split",
        "train.tokenizer": "tokenizer_path tokenizer_name tokenizer_dir tokenizer_name_or_path",
        "train.text_field": "text_column dataset_text_field text_key content_field",
        "train.sequence_length": "seq_len seq_length max_seq_length max_seq_len block_size context_length max_length "
        "max_sequence_length ctx_len context_size",
        "train.strategy": "distributed_strategy parallelism_strategy distributed",
        "train.sharding": "fsdp_sharding_strategy sharding_strategy",
        "train.shard_size": "data_parallel_shard_degree hybrid_shard_size",
        "train.wrap": "auto_wrap_policy fsdp_transformer_layer_cls_to_wrap transformer_layer_cls_to_wrap",
        "train.cpu_offload": "fsdp_offload_params offload offload_params offload_optimizer",
        "train.zero_stage": "stage deepspeed_stage zero",
        "train.lora": "peft peft_config lora_config use_lora use_peft peft_type",
        "train.lora.r": "lora_r rank lora_rank lora_dim adapter_rank",
        "train.lora.lora_alpha": "alpha adapter_alpha",
        "train.lora.lora_dropout": "adapter_dropout",
        "train.lora.target_modules": "lora_target_modules lora_target targets",
        "train.lora.exclude_modules": "lora_exclude_modules",
        "train.lora.use_rslora": "rslora",
        "train.precision": "dtype mixed_precision torch_dtype fp16 bf16 amp half_precision param_dtype fp8 float8",
        "train.activation_checkpointing": "gradient_checkpointing activation_checkpoint grad_checkpointing checkpointing",
        "train.compile": "torch_compile use_compile",
        "train.micro_batch_size": "batch_size per_device_train_batch_size train_batch_size batch micro_batch micro_batch_sz bs "
        "device_batch_size per_gpu_batch_size per_gpu_train_batch_size local_batch_size train_micro_batch_size_per_gpu mbs "
        "per_device_batch_size",
        "train.gradient_accumulation_steps": "accumulation_steps grad_accum grad_accum_steps accum_steps accumulation "
        "gradient_accumulation accumulate_grad_batches grad_acc gradient_accumulation_step ga",
        "train.max_steps": "steps num_steps train_steps total_steps max_iters iters num_iters iterations max_iterations "
        "num_training_steps training_steps max_train_steps n_steps step_count",
        "train.epochs": "num_epochs num_train_epochs max_epochs n_epochs epoch train_epochs number_of_epochs",
        "train.max_minutes": "max_time time_budget minutes",
        "train.lr": "learning_rate peak_lr max_lr base_lr learningrate init_lr lrate",
        "train.min_lr": "min_learning_rate lr_min end_lr final_lr eta_min lr_end minimum_lr",
        "train.schedule": "lr_scheduler lr_scheduler_type scheduler_type lr_schedule decay_type",
        "train.warmup_steps": "num_warmup_steps lr_warmup_steps warmup_iters warmup_iterations",
        "train.warmup_fraction": "warmup_ratio warmup_proportion",
        "train.weight_decay": "wd decay l2 weightdecay",
        "train.betas": "adam_betas adam_beta1 adam_beta2",
        "train.eps": "adam_epsilon epsilon adam_eps",
        "train.grad_clip": "max_grad_norm gradient_clip_val gradient_clipping clip_grad clip_grad_norm max_norm clip "
        "gradient_clip clip_norm grad_norm_clip",
        "train.seed": "random_seed rng_seed manual_seed",
        "train.checkpoint_dir": "output_dir out_dir save_dir checkpoint_path checkpoint_folder ckpt_dir checkpoints output "
        "checkpoints_dir save_path dump_folder",
        "train.checkpoint_every": "save_steps save_every save_interval checkpoint_interval checkpoint_steps ckpt_every "
        "save_freq checkpoint_freq",
        "train.keep_last": "save_total_limit max_checkpoints keep_checkpoints keep_latest_k num_checkpoints",
        "train.async_checkpoint": "async_save async_mode",
        "train.resume": "resume_from_checkpoint resume_from resume_path load_checkpoint init_from",
        "train.log_every": "logging_steps log_interval log_freq log_every_n_steps print_every logging_interval log_steps",
        "train.eval_every": "eval_steps eval_interval eval_freq validation_interval val_check_interval evaluate_every "
        "val_interval",
        "train.eval_batches": "eval_iters max_eval_batches limit_val_batches val_batches",
        "train.eval_batch_size": "per_device_eval_batch_size val_batch_size validation_batch_size",
        "train.wandb_project": "wandb wandb_name",
        "train.tensorboard_dir": "tensorboard tb_dir log_dir logging_dir",
        "train.profile_from": "profile",
    }
)
"""Names in snake case, by the full path of the field that has their meaning."""
_PARALLEL_HINT = (
    "kfjob does not support tensor, pipeline or expert parallelism; `train.strategy` shards the model, and "
    "`train.context_parallel` divides long samples (docs/guides/strategies.md)"
)
_PARALLEL_HINTS = dict.fromkeys(
    (
        *("sequence_parallel", "num_experts_per_rank", "virtual_pipeline_model_parallel_size", "pp_size"),
        *("tensor_parallel", "tensor_parallel_size", "tensor_parallel_degree", "tensor_model_parallel_size", "tp", "tp_size"),
        *("pipeline_parallel", "pipeline_parallel_size", "pipeline_parallel_degree", "pipeline_model_parallel_size", "pp"),
        *("expert_parallel", "expert_parallel_size", "expert_parallel_degree", "expert_model_parallel_size", "ep", "ep_size"),
    ),
    ("", _PARALLEL_HINT),
)
HINTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        **_PARALLEL_HINTS,
        "standalone": (
            "nodes",
            "one node is `nodes: 1`; the operator's `standalone` ends torchrun with an error (`PET_STANDALONE=`)",
        ),
        "nnodes": ("nodes", "torchrun's --nnodes is `nodes`, with `elastic: {min, max}` for a range"),
        "node_rank": ("", "the operator gives every pod its own rank"),
        "master_addr": ("", "the rendezvous knows the pods by their names; a store of your own is `rendezvous.endpoint`"),
        "replicas": ("nodes", "the number of pods is `nodes`"),
        "nproc_per_node": ("processes_per_node", "torchrun's --nproc-per-node is `processes_per_node`"),
        "rdzv_backend": ("rendezvous.backend", "torchrun's --rdzv-backend is `rendezvous.backend`"),
        "rdzv_endpoint": ("rendezvous.endpoint", "torchrun's --rdzv-endpoint is `rendezvous.endpoint`"),
        "rdzv_id": ("rendezvous.id", "torchrun's --rdzv-id is `rendezvous.id`; left out, it is unique for each launch"),
        "rdzv_conf": ("rendezvous.conf", "torchrun's --rdzv-conf is `rendezvous.conf`, a mapping"),
        "max_restarts": ("restarts.max", "torchrun's --max-restarts is `restarts.max`"),
        "backoff_limit": ("run.backoff_limit", "it is `run.backoff_limit`"),
        "gpus": ("resources.gpus", "they are `resources.gpus`, or come with `instance`"),
        **dict.fromkeys(
            ("script", "cmd", "run", "entrypoint", "entry_point", "program", "main", "training_script", "exec", "commands"),
            ("command", "use `command`, with the program and its arguments: `torchrun train.py --lr 0.1`"),
        ),
        **dict.fromkeys(
            ("arguments", "script_args", "command_args", "params", "parameters"),
            ("", "the arguments are part of `command`, or `args`: `torchrun train.py --lr 0.1`"),
        ),
        "setup": ("", "install packages in `image`; `kfjob push-image` builds one"),
        "global_batch_size": (
            "",
            "it is `train.micro_batch_size` x `train.gradient_accumulation_steps` x the number of processes",
        ),
        "optimizer": ("", "the trainer's optimiser is AdamW: `train.lr`, `train.betas`, `train.eps`, `train.weight_decay`"),
    }
)
"""The field, if one has the same meaning, and a hint of its own for each of these names."""
TRAIN_HINTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        **_PARALLEL_HINTS,
        **dict.fromkeys(
            (
                "qlora",
                "load_in_4bit",
                "use_4bit",
                "bnb_4bit_quant_type",
                "quantization",
                "quantize",
                "quantization_config",
                "bnb_config",
            ),
            ("train.lora.quantize", "`train.lora.quantize: nf4` keeps the frozen model in 4 bits (QLoRA)"),
        ),
        "load_in_8bit": ("", "the trainer quantises to 4 bits, with `train.lora.quantize: nf4`"),
        **dict.fromkeys(
            ("use_dora", "dora"),
            ("", "the trainer does not support DoRA, whose magnitudes need the whole weights at the start"),
        ),
        "modules_to_save": (
            "",
            "the trainer trains adapters and, with `lora.bias`, biases; every other weight of the base is frozen",
        ),
        "task_type": ("", "the trainer trains causal language models only; remove it"),
        **dict.fromkeys(
            ("optim", "optimizer", "optimizer_type"),
            (
                "",
                "the trainer's optimiser is AdamW: `train.lr`, `train.betas`, `train.eps`, `train.weight_decay`; remove it",
            ),
        ),
        **dict.fromkeys(
            ("global_batch_size", "global_train_batch_size", "total_batch_size"),
            ("", "it is `train.micro_batch_size` x `train.gradient_accumulation_steps` x the number of ranks"),
        ),
        **dict.fromkeys(
            ("report_to", "log_with", "logger"),
            ("", "`train.wandb_project` logs to W&B, `train.tensorboard_dir` to TensorBoard"),
        ),
        **dict.fromkeys(
            ("do_train", "do_eval", "do_predict", "evaluation_strategy", "eval_strategy", "evaluate_during_training"),
            ("", "the trainer always trains, and evaluates if `train.eval_every` is set; remove it"),
        ),
        **dict.fromkeys(
            ("save_strategy", "logging_strategy"),
            ("", "the intervals are steps: `train.checkpoint_every` and `train.log_every`; remove it"),
        ),
        **dict.fromkeys(
            ("push_to_hub", "hub_model_id"), ("", "the trainer uploads nothing; `kfjob-export --upload` does afterwards")
        ),
        **dict.fromkeys(
            ("deepspeed_config", "ds_config"),
            ("", "`train.strategy: deepspeed` with `train.zero_stage` needs no file; see docs/guides/deepspeed.md"),
        ),
        "remove_unused_columns": ("", "the trainer reads only the columns that it needs; remove it"),
        **dict.fromkeys(
            ("workers", "num_workers", "dataloader_num_workers", "data_workers", "loader_workers"),
            ("", "the trainer has no worker processes for data; remove it"),
        ),
        **dict.fromkeys(("nodes", "num_nodes", "nnodes", "replicas"), ("nodes", "use `nodes`, at the top level of the spec")),
    }
)
"""The same for names that have another meaning in `train`."""


@cache
def map_words() -> Mapping[str, str]:
    """Return the field of each name."""
    return MappingProxyType({word: field for field, words in _WORDS.items() for word in words.split()})


def find_field(word: str) -> str:
    """Return the field that an option of a training script means: `train.checkpoint_dir` for `out_dir`; "" for any other."""
    name = snake_case(word)
    return f"train.{name}" if f"train.{name}" in _WORDS else map_words().get(name, "")


def list_synonyms() -> Iterator[tuple[str, str]]:
    """Yield every name of the tables, with the path of its field; "" for a name without one."""
    for field, words in _WORDS.items():
        yield from ((word, field) for word in words.split())
    for table in (HINTS, TRAIN_HINTS):
        yield from ((word, field) for word, (field, _) in table.items())
