# Build the cluster's programs with the Go toolchain into the cache. Sourced by scripts/cluster.
# shellcheck shell=bash

go_in() { # MODULE-FOLDER ARGUMENTS...: run go in a module, with separate caches
  (cd "$GO_MODULES/$1" && shift &&
    GOMODCACHE=$CACHE/go/mod GOCACHE=$CACHE/go/build GOFLAGS='-modcacherw -buildvcs=false' GOTOOLCHAIN=local \
      CGO_ENABLED=0 GOWORK=off "$GO" "$@")
}

module_key() { cat "$GO_MODULES/$1"/* | cksum | tr -d ' '; }

built() { # MODULE-FOLDER: build the module if its sources or pins have changed; otherwise print nothing
  local module=$1 flags='-s -w' stamp=$BIN/.$1 target=.
  [ "$(cat "$stamp" 2>/dev/null)" = "$(module_key "$module")" ] && return
  [ -n "${GO:-}" ] || find_go
  case $module in
    kubernetes)
      target="k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager
        k8s.io/kubernetes/cmd/kube-scheduler k8s.io/kubernetes/cmd/kubelet k8s.io/kubernetes/cmd/kube-proxy
        k8s.io/kubernetes/cmd/kubectl"
      # without these flags every check of the server's version fails
      local package=k8s.io/component-base/version minor=${KUBERNETES_VERSION#v1.}
      flags+=" -X $package.gitVersion=$KUBERNETES_VERSION -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}" ;;
    operator) target=github.com/kubeflow/training-operator/cmd/training-operator.v1 ;;
    kwok) target=sigs.k8s.io/kwok/cmd/kwok ;;
    kueue) target=sigs.k8s.io/kueue/cmd/kueue ;;
    jobset) target=sigs.k8s.io/jobset ;;
    trainer) target=github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager ;;
  esac
  say "building $module (once; large modules take minutes)"
  mkdir -p "$BIN/new"
  # shellcheck disable=SC2086 # target is a list
  step "$module built" go_in "$module" build -p 2 -trimpath -ldflags "$flags" -o "$BIN/new/" $target
  mv "$BIN"/new/* "$BIN/"
  [ "$module" = operator ] && operator_overlay
  module_key "$module" >"$stamp"
}

operator_overlay() { # copy the operator's manifests from the module of its binary
  local source
  source=$(go_in operator list -m -f '{{.Dir}}' github.com/kubeflow/training-operator)
  rm -rf "$CACHE/training-operator"
  cp -r "$source/manifests" "$CACHE/training-operator"
}

older_crd() { # MODULE-FOLDER: write the CRD of an older operator with an API group of its own
  local source module=$1 name=${1//./-} target=$CACHE/$1.yaml
  [ ! -s "$target" ] || return 0
  [ -n "${GO:-}" ] || find_go
  go_in "$module" mod download github.com/kubeflow/training-operator
  source=$(go_in "$module" list -m -f '{{.Dir}}' github.com/kubeflow/training-operator)
  sed -E "s/(pytorchjobs\.)?kubeflow\.org$/\1$name.$OLDER_DOMAIN/; s/(name|plural|singular): pytorchjob/\1: olderpytorchjob/" \
    "$source/manifests/base/crds/kubeflow.org_pytorchjobs.yaml" >"$target.new"
  mv "$target.new" "$target"
}

build_programs() {
  mkdir -p "$BIN"
  local module
  for module in pause read-yaml etcd kubernetes coredns operator; do built "$module"; done
  for module in "${OLDER_OPERATORS[@]}"; do older_crd "$module"; done
}
