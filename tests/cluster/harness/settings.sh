# Names, versions, addresses, folders and messages of the test cluster. Sourced by scripts/cluster.
# shellcheck shell=bash disable=SC2034

STATE=${KFJOB_CLUSTER_STATE:-/var/lib/kfjob-cluster}
CACHE=${KFJOB_CLUSTER_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/kfjob/cluster}
GO_MODULES=$ROOT/tests/cluster/go
BIN=$CACHE/bin
LOGS=$STATE/logs
PKI=$STATE/pki
KUBECONFIG_ADMIN=$STATE/kubeconfig

# One pair of virtual interfaces connects the machine and the node's network namespace; nothing else is visible outside.
LINK=kfjob0
HOST_IP=10.201.0.1
NODE_IP=10.201.0.2
POD_CIDR=10.202.0.0/16
FURTHER_POD_CIDR=10.204.0.0/16
SERVICE_CIDR=10.203.0.0/16
API_SERVICE_IP=10.203.0.1
API_SERVER=https://$NODE_IP:6443
# The CRDs of these older operators have API groups of their own, so that tests check manifests against each of them.
OLDER_OPERATORS=(operator-1.7 operator-1.9.3)
OLDER_DOMAIN=kfjob.test
MARK=.kfjob-test-cluster # marks the two folders that scripts/cluster may remove
NODE_NAME=kfjob-node
CGROUP=kfjob-cluster

# The registry listens on this address on the machine and in the node; image names use the second name.
REGISTRY_PORT=26500
REGISTRY=127.0.0.1:$REGISTRY_PORT
REGISTRY_NAME=registry.kfjob.test
ETCD_IMAGE=etcd:3.4

# Folders of the node for pods: the environment's packages (read-only) and a shared folder.
NODE_SITE_PACKAGES=/run/kfjob/site-packages
NODE_SHARED=/run/kfjob/shared
POD_SITE_PACKAGES=/opt/host-site-packages

# GiB of disk: for the sources and compiler caches of the first build, and later for a cluster with its images
FREE_TO_BUILD=12
FREE_TO_RUN=4

version_of() { # MODULE-FOLDER MODULE: print the version in go.mod
  awk -v module="$2" '$1 != "tool" && ($1 == module || $2 == module) { print $NF == "indirect" ? $(NF - 2) : $NF; exit }' "$GO_MODULES/$1/go.mod"
}
KUBERNETES_VERSION=$(version_of kubernetes k8s.io/kubernetes)
OPERATOR_VERSION=$(version_of operator github.com/kubeflow/training-operator)

say() { printf '\033[2mcluster:\033[0m %s\n' "$*" >&2; }
die() { # MESSAGE [HINT]
  printf 'error: %s\n' "$1" >&2
  [ -z "${2:-}" ] || printf 'hint: %s\n' "$2" >&2
  exit 1
}
own_folder() { # FOLDER: create and mark it; never use or remove an unmarked folder with files
  [ ! -e "$1" ] || [ -e "$1/$MARK" ] || [ -z "$(ls -A "$1")" ] ||
    die "$1 has files that do not belong to the test cluster" "set KFJOB_CLUSTER_STATE and KFJOB_CLUSTER_CACHE to empty folders"
  mkdir -p "$1"
  touch "$1/$MARK"
}
remove_folder() { # FOLDER
  [ ! -e "$1" ] || [ -e "$1/$MARK" ] || die "$1 does not belong to the test cluster, so it is not removed"
  rm -rf --one-file-system "$1"
}
now_ms() { local t=${EPOCHREALTIME/[.,]/}; echo $((t / 1000)); }
seconds_since() { local ms=$(($(now_ms) - $1)); printf '%d.%01d s' $((ms / 1000)) $((ms % 1000 / 100)); }
step() { # LABEL COMMAND...: run the command and print how long it took
  local label=$1 start
  start=$(now_ms)
  shift
  "$@"
  say "$label: $(seconds_since "$start")"
}
kubectl() { "$BIN/kubectl" --kubeconfig "$KUBECONFIG_ADMIN" "$@"; }
