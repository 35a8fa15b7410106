# Inspect the cluster: status, logs, and what a cluster has left behind. Sourced by scripts/cluster.
# shellcheck shell=bash

COMPONENTS=(node etcd kube-apiserver kube-controller-manager kube-scheduler containerd kubelet kube-proxy coredns registry
  registry-node)

running() { pid_of node >/dev/null; }
require_running() { running || die "no test cluster is running" "scripts/cluster up"; }

component_healthy() { # NAME
  pid_of "$1" >/dev/null || return 1
  case $1 in
    node) true ;;
    etcd) node_get http://127.0.0.1:2379/health ;;
    kube-apiserver) apiserver_ready ;;
    kube-controller-manager) in_node curl -skf -m 2 https://127.0.0.1:10257/healthz ;;
    kube-scheduler) in_node curl -skf -m 2 https://127.0.0.1:10259/readyz ;;
    containerd) node_ctr version ;;
    kubelet) node_get http://127.0.0.1:10248/healthz ;;
    kube-proxy) node_get http://127.0.0.1:10256/healthz ;;
    coredns) node_get http://127.0.0.1:8181/ready ;;
    registry) curl -sf -m 2 "http://$REGISTRY/v2/" ;;
    registry-node) node_get "http://$REGISTRY/v2/" ;;
    kwok) node_get http://127.0.0.1:10247/healthz ;;
  esac >/dev/null 2>&1
}
component_version() { # NAME
  case $1 in
    kube*) echo "$KUBERNETES_VERSION" ;;
    etcd) version_of etcd go.etcd.io/etcd/server/v3 ;;
    coredns) version_of coredns github.com/coredns/coredns ;;
    kwok) version_of kwok sigs.k8s.io/kwok ;;
    containerd) containerd --version | awk '{ print $3 }' ;;
    registry*) "$DEBIAN/docker-registry/usr/bin/docker-registry" --version | awk '{ print $NF }' ;;
    node) uname -r ;;
  esac
}

cluster_status() {
  running || { echo "no test cluster is running"; return 1; }
  local name pid code=0 state components=("${COMPONENTS[@]}")
  [ ! -e "$STATE/pids/kwok" ] || components+=(kwok)
  printf '%-24s %-8s %-10s %s\n' COMPONENT PID HEALTH VERSION
  for name in "${components[@]}"; do
    pid=$(pid_of "$name") || pid=-
    if component_healthy "$name"; then state=ok; else state=unhealthy code=1; fi
    printf '%-24s %-8s %-10s %s\n' "$name" "$pid" "$state" "$(component_version "$name")"
  done
  if node_ready 2>/dev/null; then state=ok; else state=unhealthy code=1; fi
  printf '%-24s %-8s %-10s %s\n' "$NODE_NAME" - "$state" "$(kubectl get nodes --no-headers 2>/dev/null | wc -l) nodes"
  if operator_ready 2>/dev/null; then state=ok; else state=unhealthy code=1; fi
  printf '%-24s %-8s %-10s %s\n' training-operator - "$state" "$OPERATOR_VERSION"
  cat <<EOF

kubeconfig    $KUBECONFIG_ADMIN
registry      push to $REGISTRY/NAME:TAG, pull from $REGISTRY_NAME/NAME:TAG
packages      hostPath $NODE_SITE_PACKAGES (read-only); mount it at $POD_SITE_PACKAGES
shared folder hostPath $NODE_SHARED, on this machine $STATE/volumes/shared
logs          $LOGS
EOF
  return "$code"
}
healthy() { cluster_status >/dev/null 2>&1; }

cluster_logs() { # DIR
  [ $# = 1 ] || die "no folder given" "scripts/cluster logs DIR"
  mkdir -p "$1"
  [ -d "$STATE" ] || die "there is no cluster and there are no logs" "scripts/cluster up"
  cp -r "$LOGS" "$1/components"
  [ ! -d "$STATE/node/var/log/pods" ] || cp -r "$STATE/node/var/log/pods" "$1/pods"
  cp "$STATE"/*.yaml "$STATE"/*.toml "$STATE"/Corefile "$1/" 2>/dev/null || true
  if running && apiserver_ready >/dev/null 2>&1; then
    kubectl get events -A --sort-by=.lastTimestamp >"$1/events.txt" 2>&1 || true
    kubectl describe nodes,pods -A >"$1/describe.txt" 2>&1 || true
    kubectl get pytorchjobs,pods,services,deployments -A -o yaml >"$1/objects.yaml" 2>&1 || true
    in_node nft list ruleset >"$1/nftables.txt" 2>&1 || true
  fi
  say "logs are in $1"
}

check_clean() { # list what a cluster has left behind; exit code 1 if there is anything
  local left=0 pid path
  report() { printf 'left behind: %s\n' "$*" >&2; left=1; }
  for pid in $(processes_left); do report "process $pid $(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c1-100)"; done
  ! ip link show "$LINK" >/dev/null 2>&1 || report "network interface $LINK"
  for path in $(awk -v state="$STATE/" -v cache="$CACHE/" 'index($5, state) == 1 || index($4, state) == 1 || index($5, cache) == 1 { print $5 }' /proc/self/mountinfo); do
    report "mount $path"
  done
  [ ! -e "$STATE" ] || report "folder $STATE"
  for path in $(cgroup_folders); do [ ! -e "$path" ] || report "cgroup $path"; done
  ! ip route | grep -qE "^(${POD_CIDR%/*}|${SERVICE_CIDR%/*})/" || report "routes to $POD_CIDR or $SERVICE_CIDR"
  # the node's rules, bridge and sockets belong in its own namespaces; outside them they are an error
  ! nft list tables 2>/dev/null | grep -q kube-proxy || report "nftables table kube-proxy"
  ! ip link show cni0 >/dev/null 2>&1 || report "network interface cni0"
  [ "$left" = 1 ] || say "nothing is left of a test cluster"
  return "$left"
}
processes_left() { # print the pids of programs from the cache and of the cluster's cgroup
  { for folder in $(cgroup_folders); do [ ! -d "$folder" ] || find "$folder" -name cgroup.procs -exec cat {} +; done
    for path in /proc/[0-9]*; do
      [[ $(readlink "$path/exe") != "$CACHE"/* ]] || echo "${path#/proc/}"
    done; } 2>/dev/null | sort -un
}
