#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
#
# The Python tests of one wheel under several Python and torch versions:
#
#   tests/python/versions.sh WHEEL [PYTHON:TORCH ...]
#
# By default, of the Pythons from 3.10 on that are found (by name or in pyenv's folder): the oldest
# with the oldest torch that the wheel serves, the newest with the pinned torch, those between
# without torch ("none"). Environments are made in build/versions, about 5 GB each.
set -euo pipefail
wheel=$(realpath "$1")
shift
cd "$(dirname "${BASH_SOURCE[0]}")"
OLDEST_TORCH=2.6.0
PINNED_TORCH=$(sed -n 's/^torch==//p' ../../requirements/test.txt)

# find_python 3.X: the path of one that runs. (A shim of pyenv may be there and not run.)
find_python() {
  local python
  for python in "$(command -v "python$1" || true)" \
    "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    if [ -x "$python" ] && "$python" -c 'import venv, ensurepip' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
}

default_pairs() {
  local pythons=() python i
  for i in {10..15}; do
    python=$(find_python "3.$i")
    [ -z "$python" ] || pythons+=("$python")
  done
  [ ${#pythons[@]} -gt 1 ] || { echo "versions: expected two Pythons >= 3.10 or more" >&2; exit 1; }
  pairs=("${pythons[0]}:$OLDEST_TORCH" "${pythons[-1]}:$PINNED_TORCH")
  for python in "${pythons[@]:1:${#pythons[@]}-2}"; do pairs+=("$python:none"); done
}

# test_pair PYTHON TORCH: makes the environment, installs the wheel, runs the tests.
test_pair() {
  local python=$1 torch=$2 version folder
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  folder=../../build/versions/python$version-torch-$torch
  local packages=(numpy pytest "$wheel")
  [ "$torch" = none ] || packages+=("torch==$torch" setuptools)
  echo "== Python $version, torch $torch"
  [ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
  "$folder/bin/pip" install -q --disable-pip-version-check "${packages[@]}" &&
    "$folder/bin/pip" install -q --disable-pip-version-check --no-deps --force-reinstall "$wheel" &&
    env -u FFPA_LIBRARY -u PYTHONPATH "$folder/bin/python" -m pytest -q -p no:cacheprovider
}

pairs=("$@")
[ ${#pairs[@]} -gt 0 ] || default_pairs
failed=()
for pair in "${pairs[@]}"; do
  test_pair "${pair%%:*}" "${pair##*:}" || failed+=("$pair")
done
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}"; exit 1; }
