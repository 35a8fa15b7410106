# up, down and kubeconfig. Sourced by scripts/cluster.
# shellcheck shell=bash

with_lock() { # allow one command at a time; the lock is on the cache folder and leaves no file
  own_folder "$CACHE"
  exec 9<"$CACHE"
  flock --nonblock 9 || { say "waiting for another scripts/cluster"; flock --timeout 1800 9 || die "timeout: another scripts/cluster is still running"; }
}

cluster_up() {
  local fakes=0 start package
  while [ $# -gt 0 ]; do
    case $1 in
      --fake-nodes) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "--fake-nodes needs a number"; fakes=$2; shift 2 ;;
      *) die "unknown option \`$1\`" "scripts/cluster up [--fake-nodes N]" ;;
    esac
  done
  require_root
  if ! running; then
    require_machine
    "$ROOT/scripts/packages" install cluster || exit
    require_no_other
  fi
  with_lock
  start=$(now_ms)
  if running; then
    healthy || die "the test cluster runs but is not healthy: see \`scripts/cluster status\`" "scripts/cluster down, then up"
    say "already running (kubeconfig $KUBECONFIG_ADMIN)"
  else
    for package in "${UNPACKED[@]}"; do unpack_debian "$package"; done
    step "programs ready" build_programs
    [ ! -e "$STATE" ] || { say "removing the remains of an earlier cluster"; end_everything; }
    own_folder "$STATE"
    trap failed_up EXIT
    bring_up
    trap - EXIT
    say "up after $(seconds_since "$start"); export KUBECONFIG=$KUBECONFIG_ADMIN"
  fi
  mount_site_packages
  [ "$fakes" = 0 ] || step "$fakes fake nodes" fake_nodes "$fakes"
}

bring_up() { # start containerd and the stores first, then the API server, then everything that needs it
  local start
  start=$(now_ms)
  step "namespaces and network" make_namespaces
  start_etcd
  start_containerd
  start_registries
  step "certificates" make_certificates
  start_apiserver
  wait_for 30 containerd "containerd" component_healthy containerd
  import_node_images &
  local import=$!
  wait_for 60 kube-apiserver "the API server" apiserver_ready
  say "API server ready: $(seconds_since "$start")"
  start_controllers
  grant_rights
  start_dns
  start_kubelet
  start_kube_proxy
  wait_for 30 kube-apiserver "the operator's manifests to apply" install_operator
  wait "$import" || component_failed containerd "cannot import the node's images"
  wait_for 60 kubelet "the node to be Ready" node_ready
  say "node Ready: $(seconds_since "$start")"
  wait_for 30 coredns "cluster DNS" component_healthy coredns
  wait_for 30 kube-proxy "kube-proxy" component_healthy kube-proxy
  wait_for 30 registry "the registry" component_healthy registry
  wait_for 30 registry-node "the registry inside the node" component_healthy registry-node
  step "base and etcd image in the registry" push_images
  wait_for 120 kubelet "the operator's webhook" operator_ready
  say "operator ready: $(seconds_since "$start")"
}

push_images() { push_base_image && push_etcd_image; }

another_owner() { # print the owner of the cluster's network interface, unless it is this state folder
  local owner
  owner=$(ip -json link show "$LINK" 2>/dev/null | sed -n 's/.*"ifalias":"\([^"]*\)".*/\1/p; t; s/.*"ifname".*/interface of another origin/p')
  [ -n "$owner" ] || return 1
  [ "$owner" != "$(link_alias)" ] && echo "$owner"
}
require_no_other() {
  local owner
  ! owner=$(another_owner) || die "another test cluster is on this machine ($owner)" \
    "a machine can have one cluster: run \`scripts/cluster down\` with the other's KFJOB_CLUSTER_STATE"
  pid_of registry >/dev/null || ! ss -Hltn "sport = :$REGISTRY_PORT" | grep -q . ||
    die "port $REGISTRY_PORT is in use, and the registry needs it"
  ip link show "$LINK" >/dev/null 2>&1 || ! ip route | grep -qE '^10\.20[123]\.' ||
    die "this machine already has routes into 10.201.0.0-10.203.255.255, the cluster's addresses"
}

failed_up() { # keep the logs and remove the rest
  local code=$? folder
  trap - EXIT
  folder=$CACHE/failed/$(date -u +%Y%m%dT%H%M%S)
  cluster_logs "$folder" || true
  end_everything
  exit "$code"
}

cluster_down() {
  local purge=
  case ${1:-} in --purge-cache) purge=yes ;; '') ;; *) die "unknown option \`$1\`" "scripts/cluster down [--purge-cache]" ;; esac
  require_root
  with_lock
  local start
  start=$(now_ms)
  if [ -e "$STATE" ]; then end_everything; say "down after $(seconds_since "$start")"; else say "no test cluster is running"; fi
  [ -z "$purge" ] || { remove_folder "$CACHE"; say "removed $CACHE"; }
  check_clean || exit
}

end_everything() {
  [ -e "$STATE/$MARK" ] || die "$STATE does not belong to the test cluster, so it is not removed"
  # when the first process of the pid namespace ends, the kernel kills all others and removes the namespaces
  ! running || step "node ended" end_process node
  end_process registry
  if ! another_owner >/dev/null; then # do not touch a later cluster
    ip link delete "$LINK" 2>/dev/null || true # the kernel may be removing it with its namespace
    empty_cgroups
  fi
  remove_folder "$STATE"
}

empty_cgroups() {
  local folder pid tries=0
  for folder in $(cgroup_folders); do
    until [ ! -d "$folder" ] || find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null; do
      for pid in $(find "$folder" -name cgroup.procs -exec cat {} + 2>/dev/null); do kill -KILL "$pid" 2>/dev/null || true; done
      [ $((tries += 1)) -lt 200 ] || { say "cgroup $folder still has processes"; break; }
      sleep 0.05
    done
  done
}

cluster_kubeconfig() {
  local user=admin namespace=default
  while [ $# -gt 0 ]; do
    case $1 in
      --user) user=${2:?--user needs a name}; shift 2 ;;
      --namespace) namespace=${2:?--namespace needs a name}; shift 2 ;;
      *) die "unknown option \`$1\`" "scripts/cluster kubeconfig [--user admin|submitter|reader|nobody] [--namespace NS]" ;;
    esac
  done
  require_running
  if [ "$user" = admin ]; then echo "$KUBECONFIG_ADMIN"; else user_kubeconfig "$user" "$namespace"; fi
}

cluster_env() { # print the variables with which kfjob and kubectl use the cluster and its registry
  require_running
  printf 'export KUBECONFIG=%q KFJOB_REGISTRY_CERTS=%q\n' "$KUBECONFIG_ADMIN" "$STATE/certs.d"
}
cluster_volumes() { # print the volumes of a spec: the packages of this machine's environment, and the shared folder at /data
  require_running
  echo "[{name: torch, mount_path: $POD_SITE_PACKAGES, host_path: $NODE_SITE_PACKAGES, read_only: true}," \
    "{name: data, mount_path: /data, host_path: $NODE_SHARED}]"
}
