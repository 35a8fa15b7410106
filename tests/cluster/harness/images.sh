# Container images: what the node needs to start, the base with Python, etcd 3.4, the project's own. Sourced by scripts/cluster.
# shellcheck shell=bash

scratch_image() { # REFERENCE BINARY PATH: a docker archive with nothing but one static program, on stdout
  local folder layer config
  folder=$(mktemp -d)
  mkdir -p "$folder/root$(dirname "$3")"
  cp "$2" "$folder/root$3"
  tar --sort=name --mtime=@0 --owner=0 --group=0 -C "$folder/root" -cf "$folder/layer.tar" .
  layer=$(sha256sum <"$folder/layer.tar" | cut -d' ' -f1)
  config="{\"architecture\":\"$(architecture)\",\"os\":\"linux\",\"config\":{\"Entrypoint\":[\"$3\"]},"
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

# Buildah keeps its layers in the cache, and the registry is told about by a file of our own.
buildah_() { command buildah --root "$CACHE/buildah" --runroot "$STATE/buildah" --storage-driver overlay "$@"; }
in_registry() { # REPOSITORY:TAG
  curl -sf -o /dev/null -H 'Accept: application/vnd.oci.image.manifest.v1+json' "http://$REGISTRY/v2/${1%:*}/manifests/${1##*:}"
}
commit_and_push() { # CONTAINER REPOSITORY:TAG
  buildah_ commit --quiet --rm "$1" "$REGISTRY/$2" >/dev/null
  push "$2"
}
push() { buildah_ push --quiet --tls-verify=false "$REGISTRY/$1" "docker://$REGISTRY/$1" >/dev/null; }

release() { # shellcheck source=/dev/null
  . /etc/os-release && echo "${VERSION_CODENAME:-bookworm}"
}
recipe_tag() { declare -f base_image rootfs | cksum | cut -d' ' -f1; } # a changed recipe makes a new image

base_image() { # prints REPOSITORY:TAG of the base with Python and the way to the mounted packages
  local image tree container
  image=kfjob-test/base:$(release)-$(recipe_tag)
  if ! in_registry "$image"; then
    tree=$(rootfs)
    container=$(buildah_ from scratch)
    buildah_ add --quiet "$container" "$tree" / >/dev/null
    buildah_ config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --cmd python3 "$container"
    buildah_ add --quiet --chmod 755 "$container" "$(own_file torchrun '#!/bin/sh\nexec python3 -m torch.distributed.run "$@"\n')" /usr/local/bin/torchrun >/dev/null
    buildah_ add --quiet --chmod 644 "$container" "$(own_file mounted.pth "$POD_SITE_PACKAGES"'\n')" "$(dist_packages "$tree")/mounted.pth" >/dev/null
    commit_and_push "$container" "$image"
  fi
  echo "$image"
}
own_file() { mkdir -p "$STATE/image" && printf "$2" >"$STATE/image/$1" && echo "$STATE/image/$1"; } # NAME TEXT
python_of() { tar -tf "$1" | grep -oE '^\./usr/bin/python3\.[0-9]+$' | grep -oE '3\.[0-9]+'; } # ROOTFS
dist_packages() { echo "/usr/local/lib/python$(python_of "$1")/dist-packages"; }

rootfs() { # prints the path of a Debian file system with Python, as a tar
  local tree
  tree=$CACHE/rootfs-$(release).tar
  if [ ! -s "$tree" ]; then
    say "making a Debian $(release) file system with Python (once, about a minute)"
    mmdebstrap --quiet --variant=minbase --include=python3,python3-pip,ca-certificates,procps "$(release)" "$tree.new" >&2
    mv "$tree.new" "$tree"
  fi
  echo "$tree"
}

etcd_image() { # a job's own etcd is 3.4: later ones forget the rendezvous of torch's `etcd` backend after two hours
  local image=etcd:3.4 container
  if ! in_registry "$image"; then
    container=$(buildah_ from --tls-verify=false "$REGISTRY/$(base_image)")
    buildah_ add --quiet "$container" "$DEBIAN/etcd-server/usr/bin/etcd" /usr/local/bin/etcd >/dev/null
    buildah_ config --cmd etcd --port 2379 --label "org.opencontainers.image.version=$("$DEBIAN/etcd-server/usr/bin/etcd" --version | awk 'NR == 1 { print $3 }')" "$container"
    commit_and_push "$container" "$image"
  fi
  echo "$image"
}

job_image() { # prints the reference of the project's image, building and pushing it if its sources changed
  local base image secrets=()
  base=$(base_image)
  check_python "$(rootfs)"
  image=kfjob:$( (cd "$ROOT" && echo "$base" && cat Dockerfile .dockerignore pyproject.toml README.md requirements/trainer.txt &&
    find kfjob -type f -not -name '*.pyc' | LC_ALL=C sort | xargs sha256sum) | sha256sum | cut -c1-12)
  if in_registry "$image"; then
    say "the job image is up to date"
  else
    pip_secrets
    step "job image built" quietly_logged image buildah_ bud --isolation chroot --layers --tls-verify=false \
      --build-arg "BASE_IMAGE=$REGISTRY/$base" --build-arg DEPENDENCIES=none --build-arg TORCH=none \
      --build-arg "REVISION=$(git -C "$ROOT" rev-parse HEAD 2>/dev/null || echo unknown)" \
      "${secrets[@]}" --tag "$REGISTRY/$image" --file "$ROOT/Dockerfile" "$ROOT"
    push "$image"
  fi
  echo "$REGISTRY_NAME/$image"
}
pip_secrets() { # the machine's way to its package index, for the build and not for the image
  local file
  for file in "${PIP_CONFIG_FILE:-}" "${XDG_CONFIG_HOME:-${HOME:-/root}/.config}/pip/pip.conf" "${HOME:-/root}/.pip/pip.conf" /etc/pip.conf; do
    [ -f "$file" ] && { secrets+=(--secret "id=pip,src=$file"); break; }
  done
  file=${PIP_CERT:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}
  [ ! -f "$file" ] || secrets+=(--secret "id=ca,src=$file")
}
check_python() { # ROOTFS
  local image environment
  image=$(python_of "$1")
  environment=$("${KFJOB_VENV:-$ROOT/.venv}/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || return 0
  [ "$image" = "$environment" ] ||
    die "the environment has Python $environment, the image Debian's $image: pods could not use the mounted packages" \
      "PYTHON=python$image scripts/env dev, in a fresh .venv"
}
quietly_logged() { # NAME COMMAND...
  local name=$1
  shift
  "$@" >>"$LOGS/$name.log" 2>&1 || component_failed "$name" "\`$1 $2\` failed"
}
