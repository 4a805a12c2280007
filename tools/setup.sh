# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
#
# Sourced by ./run: progress lines, Debian packages, the virtual environment, nvcc.

BUILD_PACKAGES=(g++ libhwy-dev python3 python3-dev python3-venv)
TEST_PACKAGES=("${BUILD_PACKAGES[@]}" libgtest-dev)
VENV=$PWD/.venv
START=$SECONDS

say() { printf '[%3d s] %s\n' $((SECONDS - START)) "$*"; }
fail() {
  printf './run: %s\n' "$*" >&2
  exit 1
}

# quietly WHAT COMMAND...: one line while it runs; its output only if it fails.
quietly() {
  local what=$1 log
  shift
  say "$what"
  log=$(mktemp)
  if ! "$@" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    fail "$what: failed"
  fi
  rm -f "$log"
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# need_packages PACKAGE...: installs what is missing, or prints the line that does.
need_packages() {
  command -v dpkg-query >/dev/null || {
    say "not a Debian system: expecting these, or their like, to be there: $*"
    return
  }
  local missing=() package
  for package in "$@"; do installed "$package" || missing+=("$package"); done
  [ ${#missing[@]} -eq 0 ] && return
  local line="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  [ "$(id -u)" = 0 ] || fail "these Debian packages are missing. As root, run: $line"
  export DEBIAN_FRONTEND=noninteractive
  quietly "updating the list of Debian packages" apt-get update
  quietly "installing Debian packages: ${missing[*]}" \
    apt-get install -y --no-install-recommends "${missing[@]}"
}

# need_venv FILE PIP_OPTION...: .venv holds what requirements/FILE pins. Done again only when a pin
# changed.
need_venv() {
  local file=requirements/$1 stamp=$VENV/.installed-$1 pins
  shift
  pins=$(cat requirements/*.txt | sha256sum)
  [ -x "$VENV/bin/python" ] || quietly "creating .venv" python3 -m venv "$VENV"
  [ "$(cat "$stamp" 2>/dev/null)" = "$pins" ] && return
  quietly "installing $file into .venv" \
    "$VENV/bin/pip" install -q --disable-pip-version-check "$@" -r "$file"
  printf '%s\n' "$pins" >"$stamp"
}

has_gpu() { [ -e /dev/nvidia0 ] || nvidia-smi -L >/dev/null 2>&1; }

# nvcc: the system's; with a GPU and none there, the one from PyPI. Sets CUDA_OPTIONS for cmake.
need_cuda() {
  CUDA_OPTIONS=(-DFFPA_CUDA=OFF)
  local nvcc
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
  if [ -z "$nvcc" ] && has_gpu; then
    # A folder of their own: torch pins other versions of these packages.
    need_venv cuda.txt --upgrade --target "$VENV/nvcc"
    nvcc=$VENV/nvcc/nvidia/cu13/bin/nvcc
    # The wheels lack the links that CMake and a linker look for.
    local lib=${nvcc%/bin/nvcc}/lib
    ln -sfn lib "${lib}64"
    ln -sf libcudart.so.13 "$lib/libcudart.so"
  fi
  if [ -n "$nvcc" ]; then
    CUDA_OPTIONS=(-DFFPA_CUDA=ON "-DCMAKE_CUDA_COMPILER=$nvcc")
  else
    say "no nvcc and no NVIDIA GPU: the CUDA kernels are skipped"
  fi
}
