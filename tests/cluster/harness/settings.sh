# Names, versions, addresses and folders of the test cluster, and how its scripts talk. Sourced by scripts/cluster.
# shellcheck shell=bash disable=SC2034

STATE=${KFJOB_CLUSTER_STATE:-/var/lib/kfjob-cluster}
CACHE=${KFJOB_CLUSTER_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/kfjob/cluster}
GO_MODULES=$ROOT/tests/cluster/go
BIN=$CACHE/bin
LOGS=$STATE/logs
PKI=$STATE/pki
KUBECONFIG_ADMIN=$STATE/kubeconfig

# One pair of virtual interfaces joins the machine and the node's network namespace; nothing else is visible outside.
LINK=kfjob0
HOST_IP=10.201.0.1
NODE_IP=10.201.0.2
POD_CIDR=10.202.0.0/16
SERVICE_CIDR=10.203.0.0/16
API_SERVICE_IP=10.203.0.1
API_SERVER=https://$NODE_IP:6443
OLDER_GROUP=operator-1-7.kfjob.test
MARK=.kfjob-test-cluster # marks the two folders that may be removed
NODE_NAME=kfjob-node
CGROUP=kfjob-cluster

# The registry listens on this address of the machine and of the node; pods may also use the neutral name.
REGISTRY_PORT=26500
REGISTRY=127.0.0.1:$REGISTRY_PORT
REGISTRY_NAME=registry.kfjob.test
ETCD_IMAGE=etcd:3.4

# What a pod finds on the node: the environment's packages (read-only) and a folder that all pods share.
NODE_SITE_PACKAGES=/run/kfjob/site-packages
NODE_SHARED=/run/kfjob/shared
POD_SITE_PACKAGES=/opt/host-site-packages

# GiB of disk: sources and compiler caches of a first build, and what a cluster with its images takes afterwards
FREE_TO_BUILD=12
FREE_TO_RUN=4

version_of() { # MODULE-FOLDER MODULE: the version that go.mod pins
  awk -v module="$2" '$1 == module || $2 == module { print $NF == "indirect" ? $(NF - 2) : $NF; exit }' "$GO_MODULES/$1/go.mod"
}
KUBERNETES_VERSION=$(version_of kubernetes k8s.io/kubernetes)
OPERATOR_VERSION=$(version_of operator github.com/kubeflow/training-operator)

say() { printf '\033[2mcluster:\033[0m %s\n' "$*" >&2; }
die() { # MESSAGE [HINT]
  printf 'error: %s\n' "$1" >&2
  [ -z "${2:-}" ] || printf 'hint: %s\n' "$2" >&2
  exit 1
}
own_folder() { # FOLDER: makes it, with a mark; a folder of somebody else's is neither used nor, later, removed
  [ ! -e "$1" ] || [ -e "$1/$MARK" ] || [ -z "$(ls -A "$1")" ] ||
    die "$1 is in use and is not the test cluster's" "give KFJOB_CLUSTER_STATE and KFJOB_CLUSTER_CACHE folders of their own"
  mkdir -p "$1"
  touch "$1/$MARK"
}
remove_folder() { # FOLDER
  [ ! -e "$1" ] || [ -e "$1/$MARK" ] || die "$1 is not the test cluster's, it stays"
  rm -rf --one-file-system "$1"
}
now_ms() { local t=${EPOCHREALTIME/[.,]/}; echo $((t / 1000)); }
seconds_since() { local ms=$(($(now_ms) - $1)); printf '%d.%01d s' $((ms / 1000)) $((ms % 1000 / 100)); }
step() { # LABEL COMMAND...: runs it and says how long it took
  local label=$1 start
  start=$(now_ms)
  shift
  "$@"
  say "$label: $(seconds_since "$start")"
}
kubectl() { "$BIN/kubectl" --kubeconfig "$KUBECONFIG_ADMIN" "$@"; }
