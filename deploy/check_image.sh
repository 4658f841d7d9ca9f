#!/usr/bin/env bash
# Build the image from the Dockerfile with a real builder, and run it as Kubernetes would: not root, read-only, without
# capabilities. It must translate a sentence, and stop on SIGTERM with 0. Where the real base image cannot be pulled, a
# stand-in is made from Debian's own packages; it proves the Dockerfile's steps, not the base.
#   deploy/check_image.sh            needs root, buildah, podman, runc, and mmdebstrap or BASE=an image that can be pulled
#   deploy/check_image.sh base       only makes the stand-in base, which is kept
#   WORK=dir                         where images and the base are kept (the base is made once)
set -euo pipefail
cd "$(dirname "$0")/.."
WORK=${WORK:-/var/tmp/dragoman-image}
PYTHON=${PYTHON:-.venv/bin/python}
PORT=${PORT:-18600}
IMAGE=localhost/dragoman:check
MAX_APPLICATION_MB=250

for tool in buildah podman runc; do
  command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 0; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: the image check needs root"; exit 0; }
[ -n "${BASE:-}" ] || command -v mmdebstrap >/dev/null || { echo "skipped: mmdebstrap is not installed"; exit 0; }

mkdir -p "$WORK"
store=(--root "$WORK/store" --runroot "$WORK/run" --storage-driver overlay)
podman() { command podman "${store[@]}" --runtime runc --log-level fatal "$@"; }

make_base() {
  [ -z "${BASE:-}" ] || return 0
  BASE=localhost/dragoman-base:bookworm
  podman image exists "$BASE" && return 0
  if [ ! -s "$WORK/base.tar" ]; then
    mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$WORK/base.part.tar"
    mv "$WORK/base.part.tar" "$WORK/base.tar"
  fi
  podman import --quiet "$WORK/base.tar" "$BASE" >/dev/null
}

build() {
  local volumes=(-v /etc/ssl/certs/ca-certificates.crt:/etc/ssl/certs/ca-certificates.crt:ro)
  [ ! -f /etc/pip.conf ] || volumes+=(-v /etc/pip.conf:/etc/pip.conf:ro) # the machine's own package index, if it has one
  buildah "${store[@]}" bud --quiet --isolation chroot --pull=never --format docker "${volumes[@]}" \
    --build-arg "BASE=$BASE" --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
    --tag "$IMAGE" . >"$WORK/build.log" 2>&1 || { tail -n 30 "$WORK/build.log"; echo "FAILED: the build"; exit 1; }
}

# Bytes of all layers above the base's.
application_megabytes() {
  local all base
  all=$(podman image inspect --format '{{.Size}}' "$IMAGE")
  base=$(podman image inspect --format '{{.Size}}' "$BASE")
  echo $(((all - base) / 1000000))
}

must() { # must "what" command...
  local what=$1
  shift
  if "$@" >/dev/null 2>"$WORK/error.log"; then
    echo "  ok: $what"
  else
    echo "FAILED: $what"
    cat "$WORK/error.log"
    podman logs "$container" 2>&1 | tail -n 20
    podman rm --force --time 0 "$container" >/dev/null
    exit 1
  fi
}

start() {
  local volumes=()
  if ! compgen -G 'service/embedded/*/bundle.json' >/dev/null; then
    [ -d "$WORK/bundles" ] || "$PYTHON" -m tests.deploy.tiny_bundle "$WORK/bundles"
    volumes=(-v "$WORK/bundles:/bundles:ro" -e DRAGOMAN_BUNDLES=/bundles)
  fi
  container=$(podman run --detach --network host --ulimit nofile=20000:20000 --ulimit nproc=32768:32768 \
    --read-only --read-only-tmpfs=false --cap-drop ALL --security-opt no-new-privileges --memory 1g --pids-limit 128 \
    -e DRAGOMAN_HOST=127.0.0.1 -e "DRAGOMAN_PORT=$PORT" -e DRAGOMAN_DRAIN_DELAY_SECONDS=1 "${volumes[@]}" "$IMAGE")
}

ready() { curl --silent --fail --retry 60 --retry-delay 1 --retry-connrefused "http://127.0.0.1:$PORT/readyz"; }
translates() {
  local pair
  pair=$(curl --silent --fail "http://127.0.0.1:$PORT/v1/languages" |
    "$PYTHON" -c 'import json, sys; pair = json.load(sys.stdin)["pairs"][0]; print(pair["source"], pair["target"])')
  read -r source target <<<"$pair"
  curl --silent --fail "http://127.0.0.1:$PORT/v1/translate" -H 'Content-Type: application/json' \
    -d "{\"text\": \"O gato dorme.\", \"source\": \"$source\", \"target\": \"$target\"}" | grep -q '"finish_reason"'
}
inside() { podman exec "$container" "$@"; }
is_not_root() { [ "$(inside id -u)" = 10001 ]; }
has_no_capabilities() { inside grep -q '^CapEff:[[:space:]]*0*$' /proc/1/status; }
has_read_only_root() { ! inside touch /written 2>/dev/null && ! inside touch /tmp/written 2>/dev/null; }
has_no() { ! inside python3 -c "import $1" 2>/dev/null; }
has_no_tool() { ! inside sh -c "command -v $1" >/dev/null; }
is_healthy() { podman healthcheck run "$container"; }
is_small() { [ "$(application_megabytes)" -le $MAX_APPLICATION_MB ]; }
is_labelled() { podman image inspect --format '{{.Labels}}' "$IMAGE" | grep -q org.opencontainers.image.revision; }
stops() {
  podman kill --signal TERM "$container" >/dev/null
  [ "$(timeout 60 "$(type -P podman)" "${store[@]}" wait "$container" 2>/dev/null || true)" = 0 ]
}

make_base
[ "${1:-}" != base ] || exit 0
build
echo "built $IMAGE on $BASE: $(application_megabytes) MB above the base"
start
must "becomes ready" ready
must "translates a sentence" translates
must "runs as user 10001" is_not_root
must "has no capabilities" has_no_capabilities
must "has a read-only root, no writable place at all" has_read_only_root
must "has no torch" has_no torch
must "has no compiler" has_no_tool cc
must "passes its own health check" is_healthy
must "carries the OCI labels" is_labelled
must "is at most $MAX_APPLICATION_MB MB above the base" is_small
must "stops on SIGTERM with 0" stops
podman rm "$container" >/dev/null
echo "the image is good"
