"""All rules in the order in which they run and are listed."""

from __future__ import annotations

from types import MappingProxyType

from kfjob.lint import elastic, fit, hardware, operator, secrets, storage, torchrun, training

RULES = (
    elastic.elastic_bounds,
    elastic.elastic_cancelled,
    elastic.elastic_never,
    elastic.cpu_metric,
    elastic.worker_order,
    torchrun.torchrun_flags,
    torchrun.loglevel_unknown,
    torchrun.loglevel_hides_agent,
    torchrun.shared_store,
    torchrun.etcd_version,
    torchrun.rendezvous_id_reused,
    torchrun.host_network,
    torchrun.unconnected_nodes,
    hardware.more_than_the_instance,
    hardware.processes_and_gpus,
    hardware.idle_gpus,
    hardware.network_variables,
    hardware.network_variables_found_alone,
    hardware.unknown_instance,
    hardware.neuron_processes,
    hardware.precision_of_the_card,
    hardware.shared_memory,
    hardware.shared_memory_size,
    fit.gpu_memory,
    fit.host_memory,
    storage.checkpoint_storage,
    storage.checkpoint_read_only,
    storage.resume_elsewhere,
    training.single_process,
    training.shard_groups,
    training.log_rank,
    training.hub_tokenizer,
    training.hub_config,
    training.lanes,
    training.rate_never_falls,
    training.lost_updates,
    secrets.secret_in_text,
    operator.image_name,
    operator.latest_image,
    operator.readiness_gates_rendezvous,
    operator.unreliable_policy,
    operator.limit_keeps_pods,
    operator.exit_code_policy,
    operator.hyperpod_restarts,
    operator.short_grace,
    operator.istio_sidecar,
    operator.gang_size,
    operator.container_name,
)
BY_ID = MappingProxyType({rule.id: rule for rule in RULES})
