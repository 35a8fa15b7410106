# Kubeflow Trainer v2 and JobSet, with their own manifests and binaries from the cache. Sourced by scripts/cluster.
# shellcheck shell=bash

cluster_trainer() {
  require_root
  require_running
  with_lock
  local part
  case ${1:-} in
    up)
      ! trainer_ready || return 0
      for part in jobset trainer; do built "$part"; done
      scratch_image "$(part_image jobset)" "$BIN/jobset" /manager 65532:65532 | node_ctr images import - >/dev/null
      scratch_image "$(part_image trainer)" "$BIN/trainer-controller-manager" /manager 65532:65532 |
        node_ctr images import - >/dev/null
      part_manifests jobset config config/default us-central1-docker.pkg.dev/k8s-staging-images/jobset/jobset
      part_manifests trainer manifests manifests/overlays/manager ghcr.io/kubeflow/trainer/trainer-controller-manager
      printf 'featureGates:\n  TrainJobStatus: true\n' \
        >>"$STATE/manifests/trainer/manifests/base/manager/controller_manager_config.yaml"
      # JobSet is installed from its own module
      sed -i '\#third-party/jobset#d' "$STATE/manifests/trainer/manifests/overlays/manager/kustomization.yaml"
      kubectl apply --server-side -k "$STATE/manifests/jobset" >/dev/null
      kubectl apply --server-side -k "$STATE/manifests/trainer" >/dev/null
      step "trainer ready" wait_for 240 - "the webhooks of Trainer and JobSet" trainer_ready
      ;;
    down)
      # the jobs go first: without their controllers nothing removes what they own
      ! kubectl get crd trainjobs.trainer.kubeflow.org >/dev/null 2>&1 ||
        kubectl delete trainjobs --all -A --ignore-not-found --timeout=120s >/dev/null
      for part in trainer jobset; do
        [ ! -e "$STATE/manifests/$part" ] ||
          kubectl delete --ignore-not-found --timeout=120s -k "$STATE/manifests/$part" >/dev/null
      done
      ;;
    *) die "\`trainer\` needs \`up\` or \`down\`" "scripts/cluster trainer up | down" ;;
  esac
}

part_module() { case $1 in jobset) echo sigs.k8s.io/jobset ;; trainer) echo github.com/kubeflow/trainer/v2 ;; esac; }
part_image() { echo "$REGISTRY_NAME/$1:$(version_of "$1" "$(part_module "$1")")"; }

part_manifests() { # PART FOLDER KUSTOMIZATION IMAGE: copy the manifests from the module of the binary; the node has the image
  local source folder=$STATE/manifests/$1 image
  [ -n "${GO:-}" ] || find_go
  source=$(go_in "$1" list -m -f '{{.Dir}}' "$(part_module "$1")")
  image=$(part_image "$1")
  rm -rf "$folder"
  mkdir -p "$folder"
  cp -r "$source/$2" "$folder/"
  chmod -R u+w "$folder"
  cat >"$folder/kustomization.yaml" <<EOF
resources: [$3]
images: [{name: $4, newName: ${image%:*}, newTag: ${image##*:}}]
patches:
- target: {kind: Deployment}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/imagePullPolicy, value: Never}
    - {op: add, path: /spec/template/spec/containers/0/resources, value: {requests: {cpu: 50m, memory: 128Mi}}}
EOF
}

trainer_ready() { # test both webhooks: Trainer's refuses a job without its runtime, JobSet's accepts a JobSet
  local answer
  answer=$(kubectl create --dry-run=server -f - 2>&1 <<'EOF'
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: probe, namespace: default}
spec: {runtimeRef: {name: there-is-no-such-runtime, kind: TrainingRuntime}}
EOF
  ) || true
  [[ $answer == *'denied the request'* ]] || return 1
  kubectl create --dry-run=server -f - >/dev/null 2>&1 <<'EOF'
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: probe, namespace: default}
spec: {replicatedJobs: [{name: one, template: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: one, image: none}]}}}}}]}
EOF
}
