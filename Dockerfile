# The training image: kfjob and its trainer on a base of your choice.
#
#   docker build --build-arg BASE_IMAGE=pytorch/pytorch:2.11.0-cuda12.8-cudnn9-runtime -t my-registry/kfjob .
#
# `kfjob push-image --base-image …` does the same and chooses registry, repository and tag.
#
# BASE_IMAGE    Any Linux image with Python 3.11 or newer and pip. If the base image has torch, that torch stays: it was built for
#               the CUDA, NCCL and EFA libraries of the image. Common base images, and what they contain:
#                 an AWS Deep Learning Container (…/pytorch-training:…-ec2)   torch, CUDA, NCCL, EFA and aws-ofi-nccl
#                 nvcr.io/nvidia/pytorch:…-py3                                 torch, CUDA, NCCL; add EFA in a layer of your own
#                 pytorch/pytorch:…-runtime                                    torch, CUDA, NCCL; no EFA
#                 an nccl-tests image with EFA                                 CUDA, NCCL, EFA, aws-ofi-nccl; this file adds torch
#                 python:…-slim (the default)                                  Python; this file adds torch, for one node or TCP
# TORCH         auto: install the pinned torch if the base image has none; none: never install torch
# DEPENDENCIES  trainer: install the trainer's pinned requirements; none: the base image or a volume provides them
#
# Targets: the last stage is the trainer's image. `--target guard` makes the small image of `kfjob guard`, without torch. `--target nccl-tests` adds NVIDIA's nccl-tests in /opt/nccl-tests/build. It needs a
# base image with the CUDA compiler, NCCL's headers (a `-devel` image) and make. NCCL_HOME and MPI_HOME are the folders of NCCL and
# MPI (without MPI the tests run on one node only). NVCC_GENCODE selects the GPUs. NCCL_TESTS_URL is a mirror of the sources.
#
# `kfjob doctor --in-image` (or `python3 -m kfjob.image.components`) in the image prints the versions of all these parts.
#
# Pass a private package index as a secret, so that it is neither in the image nor in its history:
#   docker build --secret id=pip,src=$HOME/.config/pip/pip.conf [--secret id=ca,src=my-ca-bundle.pem] .
ARG BASE_IMAGE=python:3.11.13-slim-bookworm

FROM ${BASE_IMAGE} AS wheel
WORKDIR /src
COPY requirements/build.txt requirements/build.txt
RUN --mount=type=secret,id=pip,target=/run/secrets/pip.conf,required=false \
    --mount=type=secret,id=ca,target=/run/secrets/ca.pem,required=false \
    if [ -s /run/secrets/pip.conf ]; then export PIP_CONFIG_FILE=/run/secrets/pip.conf; fi; \
    if [ -s /run/secrets/ca.pem ]; then export PIP_CERT=/run/secrets/ca.pem; fi; \
    python3 -m pip install --quiet --no-cache-dir --no-deps --require-hashes --target /build -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY kfjob kfjob
RUN PYTHONPATH=/build python3 -m pip wheel --quiet --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheel .

FROM ${BASE_IMAGE} AS trainer
USER root
ENV PYTHONUNBUFFERED=1
RUN PATH=$PATH:/usr/sbin; \
    id kfjob >/dev/null 2>&1 || useradd --create-home --uid 10001 --shell /bin/sh kfjob; \
    mkdir -p /workspace && chown kfjob: /workspace

# The dependencies come first because they change rarely and the code changes often. The file pins every package with its hash, so
# pip installs nothing else, and above all no second torch.
ARG TORCH=auto
ARG DEPENDENCIES=trainer
COPY requirements/trainer.txt /tmp/requirements/trainer.txt
RUN --mount=type=secret,id=pip,target=/run/secrets/pip.conf,required=false \
    --mount=type=secret,id=ca,target=/run/secrets/ca.pem,required=false \
    set -eu; cd /tmp/requirements; \
    if [ "$DEPENDENCIES" = none ]; then rm -r /tmp/requirements; exit 0; fi; \
    if [ -s /run/secrets/pip.conf ]; then export PIP_CONFIG_FILE=/run/secrets/pip.conf; fi; \
    if [ -s /run/secrets/ca.pem ]; then export PIP_CERT=/run/secrets/ca.pem; fi; \
    if [ "$TORCH" = none ] || python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'; then \
      awk '/^[^ ]/ { torch = /^((torch|triton)[ =@]|nvidia-|cuda-)/ } !torch' trainer.txt >filtered.txt; mv filtered.txt trainer.txt; \
    fi; \
    PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet --no-cache-dir --no-deps --require-hashes -r trainer.txt; \
    rm -r /tmp/requirements

COPY --from=wheel /wheel /tmp/wheel
RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet --no-cache-dir --no-deps --no-index /tmp/wheel/*.whl && \
    rm -r /tmp/wheel

WORKDIR /workspace
USER kfjob

FROM trainer AS nccl-tests
USER root
ARG NCCL_TESTS_VERSION=2.17.6
ARG NCCL_TESTS_SHA256=38974e70342150ede0e3fb8fd24bfe60ccbde90fa20241716ba8bb338e6b61a0
ARG NCCL_TESTS_URL=https://github.com/NVIDIA/nccl-tests/archive/v${NCCL_TESTS_VERSION}.tar.gz
ARG MPI_HOME=/opt/amazon/openmpi
# Without a value these are unset, and nccl-tests uses its own defaults.
ARG NCCL_HOME
ARG NVCC_GENCODE
RUN --mount=type=secret,id=ca,target=/run/secrets/ca.pem,required=false \
    set -eu; if [ -s /run/secrets/ca.pem ]; then export SSL_CERT_FILE=/run/secrets/ca.pem; fi; \
    python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' "$NCCL_TESTS_URL" /tmp/nccl-tests.tar.gz; \
    echo "$NCCL_TESTS_SHA256  /tmp/nccl-tests.tar.gz" | sha256sum --check --quiet; \
    mkdir -p /opt/nccl-tests; tar -xzf /tmp/nccl-tests.tar.gz --strip-components=1 -C /opt/nccl-tests; rm /tmp/nccl-tests.tar.gz; \
    mpi=0; if [ -d "$MPI_HOME" ]; then mpi=1; fi; \
    make -C /opt/nccl-tests -j "$(nproc)" "MPI=$mpi" "MPI_HOME=$MPI_HOME" "CUDA_HOME=${CUDA_HOME:-/usr/local/cuda}"
USER kfjob

# The guard's image (docs/guides/unattended.md): kfjob without a trainer. Build it on a small base: its default is enough.
FROM ${BASE_IMAGE} AS guard
USER root
ENV PYTHONUNBUFFERED=1
COPY requirements/guard.txt /tmp/requirements/guard.txt
RUN --mount=type=secret,id=pip,target=/run/secrets/pip.conf,required=false \
    --mount=type=secret,id=ca,target=/run/secrets/ca.pem,required=false \
    if [ -s /run/secrets/pip.conf ]; then export PIP_CONFIG_FILE=/run/secrets/pip.conf; fi; \
    if [ -s /run/secrets/ca.pem ]; then export PIP_CERT=/run/secrets/ca.pem; fi; \
    PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet --no-cache-dir --no-deps --require-hashes \
      -r /tmp/requirements/guard.txt && rm -r /tmp/requirements
COPY --from=wheel /wheel /tmp/wheel
RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet --no-cache-dir --no-deps --no-index /tmp/wheel/*.whl && \
    rm -r /tmp/wheel
USER 10001:10001
CMD ["kfjob", "guard", "run"]

FROM trainer
ARG REVISION=unknown
ARG CREATED=unknown
ARG SOURCE=unknown
ARG KFJOB_VERSION=unknown
LABEL org.opencontainers.image.title="kfjob trainer" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.version="${KFJOB_VERSION}" \
      dev.kfjob.version="${KFJOB_VERSION}"
