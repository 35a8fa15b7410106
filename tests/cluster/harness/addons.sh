# The registry, the training operator, users and KWOK's fake nodes. Sourced by scripts/cluster.
# shellcheck shell=bash

start_registries() { # one for pushes on the machine and one for pulls in the node; they share the storage in the cache and the address
  local registry=$DEBIAN/docker-registry/usr/bin/docker-registry place
  mkdir -p "$CACHE/registry"
  for place in host node; do
    cat >"$STATE/registry-$place.yaml" <<EOF
version: 0.1
log: {level: warn, accesslog: {disabled: true}}
storage:
  filesystem: {rootdirectory: $CACHE/registry}
  delete: {enabled: true}
$([ "$place" = host ] || echo "  maintenance: {readonly: {enabled: true}}")
http: {addr: "$REGISTRY"}
EOF
  done
  start_on_host registry "$registry" serve "$STATE/registry-host.yaml"
  start_in_node registry-node "$registry" serve "$STATE/registry-node.yaml"
}

install_operator() {
  local kustomization=$ROOT/manifests/operator/kustomization.yaml folder=$STATE/manifests
  grep -q "overlays/standalone?ref=$OPERATOR_VERSION\$" "$kustomization" ||
    die "manifests/operator does not install $OPERATOR_VERSION, the version that tests/cluster/go/operator builds" \
      "change both versions together"
  mkdir -p "$folder/operator"
  cp -r "$CACHE/training-operator" "$folder/"
  # the same kustomization with the operator's repository on disk instead of GitHub
  sed 's#github.com/kubeflow/training-operator.git/manifests/overlays/standalone?ref=.*#../training-operator/overlays/standalone#' \
    "$kustomization" >"$folder/operator/kustomization.yaml"
  kubectl apply --server-side -k "$folder/operator" >/dev/null
  local module
  for module in "${OLDER_OPERATORS[@]}"; do kubectl apply --server-side -f "$CACHE/$module.yaml" >/dev/null; done
}
operator_image() { # print the operator image of the overlay
  local overlay=$CACHE/training-operator/overlays/standalone/kustomization.yaml
  echo "$(awk '$2 == "name:" { print $3; exit }' "$overlay"):$(awk '$1 == "newTag:" { print $2; exit }' "$overlay")"
}
operator_ready() { # test the webhook: only the webhook denies a job without a container named pytorch
  [ "$(kubectl -n kubeflow get deployment training-operator -o 'jsonpath={.status.readyReplicas}')" = 1 ] || return 1
  local answer
  answer=$(kubectl create --dry-run=server -f - 2>&1 <<'EOF'
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: probe, namespace: default}
spec: {pytorchReplicaSpecs: {Worker: {replicas: 1, template: {spec: {containers: [{name: other, image: none}]}}}}}
EOF
  ) || true
  [[ $answer == *'admission webhook "validator.pytorchjob.training-operator.kubeflow.org" denied'* ]]
}

grant_rights() {
  kubectl apply --server-side -f - >/dev/null <<'EOF'
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "kfjob:dns"}
rules:
- {apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "kfjob:dns"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "kfjob:dns"}
subjects: [{kind: User, name: "kfjob:dns"}]
EOF
}

user_kubeconfig() { # USER NAMESPACE: write a kubeconfig with a token and print its path
  local user=$1 namespace=$2 account file=$STATE/kubeconfig-$1-$2
  kubectl get namespace "$namespace" >/dev/null 2>&1 || kubectl create namespace "$namespace" >/dev/null
  case $user in
    submitter | reader) account=kfjob-$user
      kubectl -n "$namespace" apply --server-side -f "$ROOT/manifests/rbac/$user.yaml" >/dev/null ;;
    nobody) account=kfjob-nobody
      kubectl -n "$namespace" create serviceaccount "$account" --dry-run=client -o yaml |
        kubectl apply --server-side -f - >/dev/null ;;
    *) die "unknown user \`$user\`" "use --user admin | submitter | reader | nobody" ;;
  esac
  (umask 077 && kubeconfig "$account" "$namespace" \
    "token: $(kubectl -n "$namespace" create token "$account" --duration=24h)" >"$file")
  echo "$file"
}

fake_nodes() { # N: add KWOK nodes that look alternately like p5 and p4d instances
  built kwok
  if ! pid_of kwok >/dev/null; then
    start_in_node kwok "$BIN/kwok" --kubeconfig="$KUBECONFIG_ADMIN" --node-ip="$NODE_IP" \
      --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake --node-lease-duration-seconds=40 --server-address=127.0.0.1:10247
    wait_for 30 kwok "kwok's health" node_get http://127.0.0.1:10247/healthz
  fi
  local i
  for ((i = 0; i < $1; i++)); do fake_node "$i"; done | kubectl apply --server-side --force-conflicts -f - >/dev/null
  wait_for 60 kwok "$1 fake nodes" fake_nodes_ready "$1"
}
fake_nodes_ready() { [ "$(kubectl get nodes -l kfjob.dev/fake=true --no-headers | grep -cw Ready)" -ge "$1" ]; }
fake_node() { # INDEX
  local type=p5.48xlarge cpu=192 memory=2Ti efa=32
  [ $(($1 % 2)) = 0 ] || { type=p4d.24xlarge cpu=96 memory=1152Gi efa=4; }
  local resources="{cpu: '$cpu', memory: $memory, pods: '110', nvidia.com/gpu: '8', vpc.amazonaws.com/efa: '$efa'}"
  cat <<EOF
---
apiVersion: v1
kind: Node
metadata:
  name: fake-$1
  annotations: {kwok.x-k8s.io/node: fake}
  labels: {kfjob.dev/fake: "true", kubernetes.io/os: linux, kubernetes.io/arch: amd64, kubernetes.io/hostname: fake-$1,
    node.kubernetes.io/instance-type: $type, topology.kubernetes.io/zone: us-west-2a}
spec: {taints: [{key: kfjob.dev/fake, value: "true", effect: NoSchedule}]}
status: {capacity: $resources, allocatable: $resources}
EOF
}
