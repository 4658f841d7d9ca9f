#!/usr/bin/env bash
# The slow checks of deploy/, which need real tools: the image, the policy linter, the rolling restart. Each skips itself,
# and says so, where its tool is missing. PYTHON is the development environment's.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHON=${PYTHON:-.venv/bin/python}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
deploy/lint.sh >"$log" 2>&1 & # mostly waits for its packages
lint=$!
echo "image:"
deploy/check_image.sh
echo "rolling restart:"
"$PYTHON" -m deploy.demo.rolling
echo "policy:"
wait "$lint" || { cat "$log"; exit 1; }
cat "$log"
