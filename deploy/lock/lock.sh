#!/usr/bin/env bash
# Resolve the image's dependencies anew and write them with hashes: deploy/lock/{cpu,gpu,import,build}.txt. Needs uv.
set -euo pipefail
cd "$(dirname "$0")/../.."
compile() {
  uv pip compile "$@" --quiet --python-version 3.11 --python-platform x86_64-manylinux_2_28 --generate-hashes \
    --no-annotate --custom-compile-command deploy/lock/lock.sh
}
compile pyproject.toml --extra cpu --extra tracing --output-file deploy/lock/cpu.txt
compile pyproject.toml deploy/lock/gpu.in --extra gpu --extra tracing --output-file deploy/lock/gpu.txt
# What the image for `dragoman pull` adds to the CPU one, in the versions that are locked there.
compile pyproject.toml --extra cpu --extra tracing --extra import --constraint deploy/lock/cpu.txt --output-file deploy/lock/import.txt
compile deploy/lock/build.in --output-file deploy/lock/build.txt
