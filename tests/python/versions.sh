#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
#
# The Python tests of one wheel under several Python and torch versions:
#
#   tests/python/versions.sh WHEEL [PYTHON:TORCH ...]
#
# By default every Python from 3.10 on that is installed, each with the oldest torch that the wheel
# serves and the pinned one (none: without torch). Environments are made in build/versions.
set -euo pipefail
wheel=$(realpath "$1")
shift
cd "$(dirname "${BASH_SOURCE[0]}")"
pairs=("$@")
if [ ${#pairs[@]} -eq 0 ]; then
  for python in python3.{10..15}; do
    command -v "$python" >/dev/null || continue
    pairs+=("$python:none" "$python:2.6.0" "$python:2.15.0")
  done
fi
failed=()
for pair in "${pairs[@]}"; do
  python=${pair%%:*} torch=${pair##*:}
  folder=../../build/versions/$python-torch-$torch
  packages=(numpy pytest "$wheel")
  [ "$torch" = none ] || packages+=("torch==$torch" setuptools)
  echo "== $python, torch $torch"
  [ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
  if [ "$torch" != none ] &&
    ! "$folder/bin/pip" install -q --dry-run --no-deps "torch==$torch" >/dev/null 2>&1; then
    echo "no torch $torch for $python: skipped"
    continue
  fi
  "$folder/bin/pip" install -q --disable-pip-version-check "${packages[@]}"
  "$folder/bin/pip" install -q --disable-pip-version-check --no-deps --force-reinstall "$wheel"
  env -u FFPA_LIBRARY -u PYTHONPATH "$folder/bin/python" -m pytest -q -p no:cacheprovider ||
    failed+=("$pair")
done
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}"; exit 1; }
