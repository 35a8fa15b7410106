# The node: its namespaces, its network, containerd, kubelet and kube-proxy. Sourced by scripts/cluster.
# shellcheck shell=bash

make_namespaces() {
  mkdir -p "$STATE"/{pids,logs,volumes/shared}
  make_cgroups
  chmod 1777 "$STATE/volumes/shared"
  (join_cgroup
    exec setsid unshare --mount --net --pid --ipc --fork --mount-proc --propagation slave -- "$BIN/pause" \
      >>"$LOGS/node.log" 2>&1 </dev/null 9>&-) &
  local outer=$! tries=0 pid
  disown "$outer"
  until pid=$(child_of "$outer") && [ "$(readlink "/proc/$pid/exe")" = "$BIN/pause" ]; do
    [ $((tries += 1)) -lt 100 ] && [ -d "/proc/$outer" ] || component_failed node "cannot create the node's namespaces"
    sleep 0.05
  done
  remember node "$pid"
  private_folders
  node_network
}

private_folders() { # mount private folders over the ones outside the state folder that Kubernetes writes to
  in_node bash -euc '
    state=$1
    mount --make-rshared /
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir -p /run/lock /run/kfjob/shared /run/kfjob/site-packages
    mount --bind "$state/volumes/shared" /run/kfjob/shared
    for folder in /var/lib /var/log; do
      own=$state/node$folder
      mkdir -p "$own"
      case $state in "$folder"/*) mkdir -p "$state/node$state"; mount --bind "$state" "$state/node$state" ;; esac
      mount --rbind "$own" "$folder"
    done
    # kubelet sets these for the whole machine; here it finds its own values, and the machine keeps its settings
    for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
      kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
      file=$state/node/sys/${setting%=*}
      mkdir -p "${file%/*}"
      echo "${setting#*=}" >"$file"
      mount --bind "$file" "/proc/sys/${setting%=*}"
    done' - "$STATE"
}

link_alias() { echo "kfjob test cluster in $STATE"; }
node_network() {
  ip link add "$LINK" type veth peer name eth0 netns "$(pid_of node)"
  ip link set "$LINK" alias "$(link_alias)"
  ip address add "$HOST_IP/30" dev "$LINK"
  ip link set "$LINK" up
  in_node bash -euc '
    ip link set lo up
    ip address add "$1/30" dev eth0
    ip link set eth0 up
    ip route add unreachable default  # connections of pods to the internet fail at once
    ip route add "$2" via "$3"        # the node needs a route to services, so that kube-proxy can redirect it
    sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1' - "$NODE_IP" "$SERVICE_CIDR" "$HOST_IP"
  ip route add "$POD_CIDR" via "$NODE_IP" dev "$LINK"
  ip route add "$SERVICE_CIDR" via "$NODE_IP" dev "$LINK"
}

node_folder() { echo "$STATE${1:+/nodes/$1}"; } # [NAME]

start_containerd() { # [NAME]: that of the node, or of a further node
  local folder run=/run/containerd${1:+-$1}
  folder=$(node_folder "${1:-}")
  mkdir -p "$folder/cni" "$STATE/certs.d/$REGISTRY_NAME"
  # tests add a folder next to this one for each further registry (for example an ECR host name); this needs no restart.
  # kfjob reads it too: `push` is for `submit --code`
  cat >"$STATE/certs.d/$REGISTRY_NAME/hosts.toml" <<EOF
[host."http://$REGISTRY"]
capabilities = ["pull", "resolve", "push"]
EOF
  cat >"$folder/cni/10-kfjob.conflist" <<EOF
{"cniVersion": "1.0.0", "name": "kfjob${1:+-$1}", "plugins": [{
  "type": "bridge", "bridge": "${1:-cni}0", "isGateway": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "$([ $# = 0 ] && echo "$POD_CIDR" || echo "$FURTHER_POD_CIDR")"}]],
    "routes": [{"dst": "0.0.0.0/0"}]}}]}
EOF
  cat >"$folder/containerd.toml" <<EOF
version = 2
root = "$folder/containerd"
state = "$run"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt"]
[grpc]
address = "$run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "$REGISTRY_NAME/pause:1"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "$folder/cni"
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "$STATE/certs.d"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
EOF
  start_in_node "containerd${1:+-$1}" containerd --config "$folder/containerd.toml"
}
node_ctr() { in_node ctr --address /run/containerd/containerd.sock --namespace k8s.io "$@"; }

start_kubelet() { # [NAME]: that of the node, or of a further node
  local folder port=10250 health=10248
  folder=$(node_folder "${1:-}")
  [ $# = 0 ] || { port=10260 health=10258; }
  printf 'nameserver %s\n' "$NODE_IP" >"$STATE/resolv.conf"
  cat >"$folder/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd${1:+-$1}/containerd.sock
port: $port
healthzPort: $health
podLogsDir: /var/log/pods${1:+-$1}
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $PKI/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $PKI/kubelet.crt
tlsPrivateKeyFile: $PKI/kubelet.key
clusterDomain: cluster.local
clusterDNS: [$NODE_IP]
resolvConf: $STATE/resolv.conf
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP${1:+/$1}
enforceNodeAllocatable: []
failSwapOn: false
failCgroupV1: false
makeIPTablesUtilChains: false
oomScoreAdj: 0
featureGates: {KubeletInUserNamespace: true}
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%}
serializeImagePulls: false
registryPullQPS: 0
eventRecordQPS: 0
kubeAPIQPS: 200
kubeAPIBurst: 400
volumePluginDir: $STATE/node/volume-plugins
registerWithTaints: [${1:+{key: kfjob.test/further-node, effect: NoSchedule\}}]
EOF
  start_in_node "kubelet${1:+-$1}" "$BIN/kubelet" --config="$folder/kubelet.yaml" --kubeconfig="$PKI/kubelet${1:+-$1}.kubeconfig" \
    --root-dir="/var/lib/kubelet${1:+-$1}" --hostname-override="${1:-$NODE_NAME}" --node-ip="$NODE_IP"
}

start_kube_proxy() {
  cat >"$STATE/kube-proxy.yaml" <<EOF
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: $PKI/kube-proxy.kubeconfig}
clusterCIDR: $POD_CIDR
hostnameOverride: $NODE_NAME
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
nftables: {minSyncPeriod: 100ms}
EOF
  start_in_node kube-proxy "$BIN/kube-proxy" --config="$STATE/kube-proxy.yaml"
}

mount_site_packages() { # mount the environment's packages at one path of the node, for every checkout
  local source
  source=$("${KFJOB_VENV:-$ROOT/.venv}/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>/dev/null) ||
    { say "there is no Python environment yet, so pods have no torch (\`scripts/env dev\`, then \`scripts/cluster up\` again)"; return; }
  [ "$(in_node stat -c %d:%i "$NODE_SITE_PACKAGES")" != "$(stat -c %d:%i "$source")" ] || return 0
  in_node umount "$NODE_SITE_PACKAGES" 2>/dev/null || true
  in_node bash -euc 'mount --bind "$1" "$2"; mount -o remount,bind,ro "$2"' - "$source" "$NODE_SITE_PACKAGES"
  say "pods can mount $source (read-only, hostPath $NODE_SITE_PACKAGES)"
}
