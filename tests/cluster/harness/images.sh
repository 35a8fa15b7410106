# Container images: the node's own, the base with Python, etcd 3.4, and the project's. Sourced by scripts/cluster.
# shellcheck shell=bash

scratch_image() { # REFERENCE BINARY PATH [USER]: print a docker archive with one static program
  local folder layer config
  folder=$(mktemp -d)
  mkdir -p "$folder/root$(dirname "$3")"
  cp "$2" "$folder/root$3"
  tar --sort=name --mtime=@0 --owner=0 --group=0 -C "$folder/root" -cf "$folder/layer.tar" .
  layer=$(sha256sum <"$folder/layer.tar" | cut -d' ' -f1)
  config="{\"architecture\":\"$(architecture)\",\"os\":\"linux\",\"config\":{\"Entrypoint\":[\"$3\"],\"User\":\"${4:-}\"},"
  config+="\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"sha256:$layer\"]}}"
  printf '%s' "$config" >"$folder/config.json"
  printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$1" >"$folder/manifest.json"
  tar -C "$folder" -cf - manifest.json config.json layer.tar
  rm -rf "$folder"
}
architecture() { dpkg --print-architecture; }

import_node_images() {
  scratch_image "$REGISTRY_NAME/pause:1" "$BIN/pause" /pause | node_ctr images import - >/dev/null
  scratch_image "$(operator_image)" "$BIN/training-operator.v1" /manager | node_ctr images import - >/dev/null
}

# Buildah keeps its layers in the cache. Its mounts stay in a mount namespace that ends with the command.
buildah_() { unshare --mount buildah --root "$CACHE/buildah" --runroot "$STATE/buildah" --storage-driver overlay "$@"; }
in_registry() { # REPOSITORY:TAG
  curl -sf -o /dev/null -H 'Accept: application/vnd.oci.image.manifest.v1+json' "http://$REGISTRY/v2/${1%:*}/manifests/${1##*:}"
}
build_and_push() { # REPOSITORY:TAG ARGUMENTS-OF-BUD...
  local image=$1
  shift
  quietly_logged image buildah_ bud --isolation chroot --tls-verify=false --tag "$REGISTRY/$image" "$@"
  quietly_logged image buildah_ push --tls-verify=false "$REGISTRY/$image" "docker://$REGISTRY/$image"
}

release() { # shellcheck source=/dev/null
  (. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
}
base_image() { # print REPOSITORY:TAG
  echo "kfjob-test/base:$(release)-$(cat "$ROOT"/tests/cluster/images/base/* <(declare -f rootfs) | cksum | cut -d' ' -f1)"
}
push_base_image() {
  local image tree context=$STATE/image/base
  image=$(base_image)
  ! in_registry "$image" || return 0
  tree=$(rootfs)
  mkdir -p "$context"
  cp "$ROOT"/tests/cluster/images/base/* "$context/"
  cp --link "$tree" "$context/rootfs.tar" 2>/dev/null || cp "$tree" "$context/rootfs.tar"
  build_and_push "$image" --build-arg "PYTHON_VERSION=$(python_of "$tree")" "$context"
}
python_of() { tar -tf "$1" | grep -oE '^\./usr/bin/python3\.[0-9]+$' | grep -oE '3\.[0-9]+'; } # ROOTFS

rootfs() { # print the path of a tar with a Debian file system and Python; it is small because many tests push it
  local tree folder hooks=/usr/share/mmdebstrap/hooks exclude=()
  tree=$CACHE/rootfs-$(release)-$(declare -f rootfs | cksum | cut -d' ' -f1).tar
  if [ ! -s "$tree" ]; then
    say "making a Debian $(release) file system with Python (once, about a minute)"
    for folder in doc locale man; do exclude+=("--dpkgopt=path-exclude=/usr/share/$folder/*"); done
    # the hook merges /usr; the package usrmerge would install all of Perl
    quietly_logged rootfs mmdebstrap --quiet --format=tar --variant=minbase --hook-dir="$hooks/merged-usr" "${exclude[@]}" \
      --include=usr-is-merged,python3,python3-pip,ca-certificates,procps "$(release)" "$tree.new"
    rm -f "$CACHE/rootfs-$(release)-"*.tar
    mv "$tree.new" "$tree"
  fi
  echo "$tree"
}

push_etcd_image() {
  local binary=$DEBIAN/etcd-server/usr/bin/etcd context=$STATE/image/etcd
  ! in_registry "$ETCD_IMAGE" || return 0
  mkdir -p "$context"
  cp "$ROOT"/tests/cluster/images/etcd/* "$binary" "$context/"
  build_and_push "$ETCD_IMAGE" --build-arg "BASE_IMAGE=$REGISTRY/$(base_image)" \
    --build-arg "VERSION=$("$binary" --version | awk 'NR == 1 { print $3 }')" "$context"
}

job_image() { # print the name of the project's image; build and push it if its sources have changed
  local base image tree secrets=()
  base=$(base_image)
  tree=$(rootfs)
  require_same_python "$(minor_version "$(python_path)")" "$(python_of "$tree")"
  image=kfjob:$(job_sources "$base" | sha256sum | cut -c1-12)
  if in_registry "$image"; then
    say "the job image is up to date"
  else
    pip_secrets
    step "job image built and pushed" build_and_push "$image" --layers --build-arg "BASE_IMAGE=$REGISTRY/$base" \
      --build-arg DEPENDENCIES=none --build-arg TORCH=none \
      --build-arg "REVISION=$(git -C "$ROOT" rev-parse HEAD 2>/dev/null || echo unknown)" \
      --build-arg "CREATED=$(date -u +%Y-%m-%dT%H:%M:%SZ)" --build-arg "KFJOB_VERSION=$(project_version)" \
      "${secrets[@]}" --file "$ROOT/Dockerfile" "$ROOT"
  fi
  echo "$REGISTRY_NAME/$image"
}
project_version() { sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$ROOT/kfjob/base/version.py"; }
guard_image() { # print the name of the guard's image; build and push it if its sources have changed
  local base image secrets=()
  base=$(base_image)
  image=kfjob-guard:$(job_sources "$base" | sha256sum | cut -c1-12)
  if in_registry "$image"; then
    say "the guard's image is up to date"
  else
    pip_secrets
    step "guard's image built and pushed" build_and_push "$image" --layers --target guard \
      --build-arg "BASE_IMAGE=$REGISTRY/$base" "${secrets[@]}" --file "$ROOT/Dockerfile" "$ROOT"
  fi
  echo "$REGISTRY_NAME/$image"
}
job_sources() ( # BASE: print the image's sources
  cd "$ROOT" || exit
  echo "$1"
  cat Dockerfile .dockerignore pyproject.toml README.md LICENSE requirements/build.txt requirements/guard.txt requirements/trainer.txt
  find kfjob -type f -not -name '*.pyc' | LC_ALL=C sort | xargs sha256sum
)
pip_secrets() { # set `secrets` to build options with the machine's pip configuration, which stays out of the image
  local file
  for file in "${PIP_CONFIG_FILE:-}" "${XDG_CONFIG_HOME:-${HOME:-/root}/.config}/pip/pip.conf" "${HOME:-/root}/.pip/pip.conf" /etc/pip.conf; do
    [ -f "$file" ] && { secrets+=(--secret "id=pip,src=$file"); break; }
  done
  file=${PIP_CERT:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}
  [ ! -f "$file" ] || secrets+=(--secret "id=ca,src=$file")
}
quietly_logged() { # NAME COMMAND...
  local name=$1
  shift
  "$@" >>"$LOGS/$name.log" 2>&1 || component_failed "$name" "\`$1 $2\` failed"
}
