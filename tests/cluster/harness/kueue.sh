# Kueue with its own manifests and a binary from the cache. Sourced by scripts/cluster.
# shellcheck shell=bash

cluster_kueue() {
  require_root
  require_running
  with_lock
  case ${1:-} in
    up)
      built kueue
      kueue_manifests
      scratch_image "$(kueue_image)" "$BIN/kueue" /manager 65532:65532 | node_ctr images import - >/dev/null
      kubectl apply --server-side -k "$STATE/manifests/kueue" >/dev/null
      step "kueue ready" wait_for 120 - "Kueue's webhooks" kueue_ready
      ;;
    down) kubectl delete --ignore-not-found --timeout=60s -k "$STATE/manifests/kueue" >/dev/null ;;
    *) die "\`kueue\` needs \`up\` or \`down\`" "scripts/cluster kueue up | down" ;;
  esac
}

kueue_image() { echo "$REGISTRY_NAME/kueue:$(version_of kueue sigs.k8s.io/kueue)"; }

kueue_manifests() { # copy the manifests from the module of the binary; the node has the image already
  local source folder=$STATE/manifests/kueue image
  [ -n "${GO:-}" ] || find_go
  source=$(go_in kueue list -m -f '{{.Dir}}' sigs.k8s.io/kueue)
  image=$(kueue_image)
  rm -rf "$folder"
  mkdir -p "$folder"
  cp -r "$source/config" "$folder/"
  chmod -R u+w "$folder"
  # Kueue has this integration off by default since v0.19
  sed -i 's|# - "kubeflow.org/pytorchjob"|- "kubeflow.org/pytorchjob"|' "$folder/config/components/manager/controller_manager_config.yaml"
  cat >"$folder/kustomization.yaml" <<EOF
resources: [config/default]
images: [{name: us-central1-docker.pkg.dev/k8s-staging-images/kueue/kueue, newName: ${image%:*}, newTag: ${image##*:}}]
patches:
- target: {kind: Deployment, name: kueue-controller-manager}
  patch: |
    - {op: replace, path: /spec/template/spec/containers/0/imagePullPolicy, value: Never}
    - {op: replace, path: /spec/template/spec/containers/0/resources/requests, value: {cpu: 50m, memory: 128Mi}}
EOF
}

kueue_ready() { # test the webhook: only the webhook suspends a job with a queue
  [ "$(kubectl create --dry-run=server -o 'jsonpath={.spec.runPolicy.suspend}' -f - <<'EOF'
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: probe, namespace: default, labels: {kueue.x-k8s.io/queue-name: probe}}
spec: {pytorchReplicaSpecs: {Worker: {replicas: 1, template: {spec: {containers: [{name: pytorch, image: none}]}}}}}
EOF
  )" = true ]
}
