# A further node, for tests that lose or drain one: a second kubelet and containerd in the namespaces of the first node.
# shellcheck shell=bash

cluster_node() { # add|lose|remove NAME
  local name=${2:-}
  [[ $name =~ ^[a-z]{1,10}$ ]] || die "a further node needs a name of at most 10 small letters" "scripts/cluster node add|lose|remove NAME"
  require_running
  with_lock
  case $1 in
    add) add_node "$name" ;;
    lose) lose_node "$name" ;;
    remove) remove_node "$name" ;;
    *) die "unknown command \`node $1\`" "scripts/cluster node add|lose|remove NAME" ;;
  esac
}

add_node() { # NAME: start what does not run
  local cgroup
  [ -d "$(node_folder "$1")" ] || [ ! -d "$STATE/nodes" ] || [ -z "$(ls -A "$STATE/nodes")" ] ||
    die "there is a further node: $(ls "$STATE/nodes")" "scripts/cluster node remove NAME"
  mkdir -p "$(node_folder "$1")"
  if [ ! -e "$PKI/kubelet-$1.kubeconfig" ]; then
    certificate "kubelet-$1" "/O=system:nodes/CN=system:node:$1"
    certificate_kubeconfig "kubelet-$1" >"$PKI/kubelet-$1.kubeconfig"
  fi
  for cgroup in $(cgroup_folders); do
    mkdir -p "$cgroup/$1"
    [ ! -e "$cgroup/cpuset.cpus" ] || [ ! -e "$cgroup/tasks" ] || { cat "$cgroup/cpuset.cpus" >"$cgroup/$1/cpuset.cpus"
      cat "$cgroup/cpuset.mems" >"$cgroup/$1/cpuset.mems"; }
  done
  pid_of "containerd-$1" >/dev/null || start_containerd "$1"
  wait_for 30 "containerd-$1" "the containerd of $1" further_ctr "$1" version
  scratch_image "$REGISTRY_NAME/pause:1" "$BIN/pause" /pause | further_ctr "$1" images import - >/dev/null
  pid_of "kubelet-$1" >/dev/null || start_kubelet "$1"
  wait_for 60 "kubelet-$1" "node $1 to be Ready" kubectl wait --for=condition=Ready --timeout=1s "node/$1"
}
further_ctr() { in_node ctr --address "/run/containerd-$1/containerd.sock" --namespace k8s.io "${@:2}"; } # NAME ARGUMENTS...

lose_node() { # NAME: end everything on it at once, as a power cut does
  local name pid cgroup
  for name in "kubelet-$1" "containerd-$1"; do
    if pid=$(pid_of "$name"); then kill -KILL "$(child_of "$pid")" "$pid" 2>/dev/null || true; fi
  done
  for pid in $(pgrep -f "^[^ ]*containerd-shim[^ ]* .*-address /run/containerd-$1/containerd.sock" || true) \
    $(for cgroup in $(cgroup_folders); do find "$cgroup/$1" -name cgroup.procs -exec cat {} + 2>/dev/null; done); do
    kill -KILL "$pid" 2>/dev/null || true
  done
}

remove_node() { # NAME
  lose_node "$1"
  kubectl delete node "$1" --ignore-not-found >/dev/null
  in_node bash -euc '
    cut -d" " -f2 /proc/mounts | grep -E "^(/var/lib/kubelet-$1|/run/containerd-$1|$2)/" | sort -r | xargs -rn1 umount -l || true
    ip link delete "${1}0" 2>/dev/null || true
    rm -rf --one-file-system "/var/lib/kubelet-$1" "/run/containerd-$1" "/var/log/pods-$1"' - "$1" "$(node_folder "$1")"
  rm -rf --one-file-system "$(node_folder "$1")"
}
