# syntax=docker/dockerfile:1
# The image of Dragoman: two stages, so that what builds stays behind. No torch, no compiler, no pip cache.
#   docker build -t dragoman .                          for CPUs
#   docker build -t dragoman:gpu --build-arg RUNTIME=gpu .
#   docker build -t dragoman-pull --target pull .       `dragoman pull`: registries, importers, onnx; for init containers
# For builds that must repeat to the byte, pin the base by digest: --build-arg BASE=docker.io/library/python@sha256:…
ARG BASE=docker.io/library/python:3.11.14-slim-bookworm

FROM ${BASE} AS build
# cpu or gpu: which locked set of packages (deploy/lock) is installed.
ARG RUNTIME=cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
RUN python3 -m venv /opt/builder && python3 -m venv --without-pip /opt/dragoman
COPY deploy/lock/build.txt deploy/lock/${RUNTIME}.txt /tmp/lock/
# Every file must match a hash of the lock, and only wheels are taken: nothing runs code at install.
RUN /opt/builder/bin/pip install --require-hashes --only-binary :all: --requirement /tmp/lock/build.txt \
 && /opt/builder/bin/pip --python /opt/dragoman/bin/python install --require-hashes --only-binary :all: \
      --requirement "/tmp/lock/${RUNTIME}.txt" \
 && find /opt/dragoman/lib -type d -name tests -prune -exec rm -r '{}' +
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY service service
# The server alone: training and export need torch, and have no business here.
RUN /opt/builder/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /tmp/wheel . \
 && /opt/builder/bin/pip --python /opt/dragoman/bin/python install --no-deps /tmp/wheel/dragoman-*.whl \
 && rm -f /opt/dragoman/bin/dragoman-*
# CUDA's libraries, where the GPU runtime brought them, in one place for the loader.
RUN mkdir /opt/dragoman/cuda \
 && find /opt/dragoman/lib -path '*/nvidia/*/lib/*.so*' -exec ln -s '{}' /opt/dragoman/cuda/ ';'

FROM build AS build-pull
COPY deploy/lock/import.txt /tmp/lock/
RUN /opt/builder/bin/pip --python /opt/dragoman/bin/python install --require-hashes --only-binary :all: \
      --requirement /tmp/lock/import.txt
COPY export export
# Importers use small parts of it that need no torch.
COPY model model
RUN rm -rf build && /opt/builder/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /tmp/wheel-pull . \
 && /opt/builder/bin/pip --python /opt/dragoman/bin/python install --no-deps --force-reinstall /tmp/wheel-pull/dragoman-*.whl \
 && rm -f /opt/dragoman/bin/dragoman-*

FROM ${BASE} AS bare
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="Dragoman" \
      org.opencontainers.image.description="A translation server: Transformer models on ONNX Runtime with continuous batching" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
# A number, so that Kubernetes can see that it is not root; no home, no shell. It owns nothing: the root can be read-only.
RUN groupadd --gid 10001 dragoman \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin dragoman
ENV PATH=/opt/dragoman/bin:$PATH \
    LD_LIBRARY_PATH=/opt/dragoman/cuda \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    ORT_DISABLE_TELEMETRY=1 \
    DRAGOMAN_HOST=0.0.0.0 \
    DRAGOMAN_PORT=8000
USER 10001:10001
STOPSIGNAL SIGTERM
# The command is process 1 and gets the signals itself.
ENTRYPOINT ["dragoman"]

FROM bare AS pull
COPY --from=build-pull /opt/dragoman /opt/dragoman
# It ends when its bundles are there: nothing to probe.
HEALTHCHECK NONE
CMD ["pull", "--help"]

# The last stage is what a build without --target makes: the server.
FROM bare AS runtime
COPY --from=build /opt/dragoman /opt/dragoman
EXPOSE 8000
# Liveness, not readiness: a server that drains is healthy.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
  CMD ["python3", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ['DRAGOMAN_PORT']}/healthz\", timeout=2)"]
CMD ["serve"]
