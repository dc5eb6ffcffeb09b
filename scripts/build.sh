#!/usr/bin/env bash
# Everything that the build needs, then the build of the program: Debian's or Ubuntu's packages (only
# those that are missing; root or sudo is needed only then), the Python environment .venv, cmake,
# ninja. Can be repeated; with nothing to do it takes seconds and needs no network.
#   scripts/build.sh             build/transnormer
#   scripts/build.sh TARGET..    these targets instead; "all": the program and every test
#
#   CMAKE_PREFIX_PATH=DIR        build against the LibTorch in DIR instead of the one in .venv
#   TRANSNORMER_SKIP_PACKAGES=1  leave the system's packages alone
#   CMAKE_BUILD_PARALLEL_LEVEL=N compile N files at a time
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

targets=("${@:-transnormer}")

# The command or the header's package that tells whether a package is there: PACKAGE or PACKAGE:COMMAND.
packages=(g++:g++ cmake:cmake ninja-build:ninja ccache:ccache pkg-config:pkg-config git:git
  bible-kjv:bible libcli11-dev libspdlog-dev nlohmann-json3-dev libsentencepiece-dev libgtest-dev
  libgmock-dev libssl-dev libgloo-dev libgd-dev zlib1g-dev liblzma-dev libzstd-dev)

# A Python 3.10 or later that can make environments with pip, if there is one.
usable_python() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' \
      2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

missing_packages() {
  local entry
  for entry in "${packages[@]}"; do
    if [[ $entry == *:* ]]; then
      command -v "${entry#*:}" >/dev/null || echo "${entry%:*}"
    else
      [[ $(dpkg-query -W -f '${db:Status-Status}' "$entry" 2>/dev/null) == installed ]] ||
        echo "$entry"
    fi
  done
  usable_python >/dev/null || echo python3-venv
}

install_packages() {
  local missing as_root=()
  if [[ ${TRANSNORMER_SKIP_PACKAGES:-0} != 0 ]]; then
    say "System packages: left alone (TRANSNORMER_SKIP_PACKAGES)"
    return
  fi
  if ! command -v apt-get >/dev/null; then
    say "System packages: no apt-get here, so the build tools must be there already"
    return
  fi
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]} == 0)); then
    say "System packages: all there"
    return
  fi
  say "System packages: installing ${missing[*]}"
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      fail "not root, and no sudo. As root, run: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq || fail "apt-get update failed (see above)"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends -o DPkg::Lock::Timeout=120 "${missing[@]}" >/dev/null ||
    fail "apt-get could not install: ${missing[*]}"
}

# Whether CMAKE_PREFIX_PATH names a LibTorch of the user's own.
own_libtorch() {
  local directory
  for directory in $(tr ":;" "  " <<<"${CMAKE_PREFIX_PATH:-}"); do
    [[ -e $directory/include/ATen/ATen.h ]] && return
  done
  return 1
}

# "complete", "lacking" or "damaged"; "none" where there is no environment that runs, "unknown" where
# the check itself failed.
venv_state() {
  if .venv/bin/python -c "" &>/dev/null; then
    venv_state_of scripts/requirements.txt "$@"
  else
    echo none
  fi
}

venv_state_of() {
  .venv/bin/python scripts/venv_state.py "$@" || echo unknown
}

# Something in .venv that no Python environment has, if there is any: then it is not ours to remove.
stranger_in_venv() {
  [[ -L .venv ]] || find .venv -mindepth 1 -maxdepth 1 ! -name bin ! -name etc ! -name include \
    ! -name lib ! -name lib64 ! -name share ! -name pyvenv.cfg ! -name .gitignore -print -quit
}

make_venv() {
  local without=() state python stranger
  if own_libtorch; then
    say "LibTorch: the one in CMAKE_PREFIX_PATH ($CMAKE_PREFIX_PATH)"
    without=(--without torch)
  fi
  state=$(venv_state "${without[@]}")
  if [[ $state == complete ]]; then
    say "Python environment .venv: complete"
    return
  fi
  [[ $state != unknown ]] ||
    fail ".venv could not be checked (see above); remove it to have it made again"
  if [[ $state != lacking ]]; then
    if [[ -e .venv || -L .venv ]]; then
      stranger=$(stranger_in_venv)
      [[ -z $stranger ]] ||
        fail "$PWD/.venv cannot be used, and holds $stranger, so it is not removed; move it away"
      say "Python environment .venv: $([[ $state == damaged ]] && echo half made || echo cannot be run), starting over"
      rm -rf .venv 2>/dev/null || fail "no permission to remove $PWD/.venv"
    fi
    python=$(usable_python) ||
      fail "no Python 3.10 or later with venv and ensurepip (Debian's package is python3-venv)"
    "$python" -m venv .venv || fail "$python -m venv .venv failed (see above)"
  fi
  say "Python environment .venv: installing (a download of some gigabytes, minutes the first time)"
  local wanted
  mapfile -t wanted < <(grep -v '^#' scripts/requirements.txt |
    if own_libtorch; then grep -v '^torch'; else cat; fi)
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "${wanted[@]}" ||
    fail "pip could not install: ${wanted[*]} (see above)"
  [[ $(venv_state "${without[@]}") == complete ]] ||
    fail "pip finished, but .venv is still not complete; remove .venv and try again"
  say "Python environment .venv: made"
}

has_driver() {
  [[ -e /proc/driver/nvidia/version ]] || command -v nvidia-smi >/dev/null
}

# Whether an nvcc of the CUDA that LibTorch is built with is where cmake looks.
has_toolkit() {
  local wanted place
  wanted=$(sed -n 's/^nvidia-cuda-nvcc==\([0-9]*\)\..*/\1/p' scripts/requirements-cuda.txt)
  for place in "${CUDA_HOME:+$CUDA_HOME/bin/}" "${CUDA_PATH:+$CUDA_PATH/bin/}" "" /usr/local/cuda/bin/; do
    "${place}nvcc" --version 2>/dev/null | grep -q "release $wanted\." && return
  done
  return 1
}

# nvcc for GPUs that have a driver but no toolkit: a download of 60 MB. Without it a GPU is still
# used, so that failing here stops nothing.
add_cuda_compiler() {
  local wanted
  if own_libtorch || ! has_driver || has_toolkit; then
    return
  fi
  if [[ $(venv_state_of scripts/requirements-cuda.txt) == complete ]]; then
    say "CUDA compiler: the one in .venv"
    return
  fi
  say "CUDA compiler: there is an NVIDIA driver but no toolkit, so nvcc is installed into .venv"
  mapfile -t wanted < <(grep -v '^#' scripts/requirements-cuda.txt)
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "${wanted[@]}" ||
    say "CUDA compiler: pip could not install it (see above); LibTorch's slower operations will serve"
}

# As many compilers as there are cores, at most one for each 2 GB of memory.
default_jobs() {
  local by_memory
  by_memory=$(awk '/MemTotal/ {print int($2 / 2000000)}' /proc/meminfo)
  echo $((by_memory < 1 ? 1 : by_memory < $(nproc) ? by_memory : $(nproc)))
}

build() {
  local jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(default_jobs)}
  # Lets ccache serve a second clone of the project.
  export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$PWD}" CCACHE_NOHASHDIR=1
  say "Configuring build/"
  # -U: where LibTorch and nvcc lie is looked up again each time.
  cmake --preset release -U 'TORCH_*' -U TRANSNORMER_NVCC --log-level=WARNING >/dev/null || fail "cmake failed (see above)"
  say "Building (compiling $jobs files at a time)"
  cmake --build --preset release -j "$jobs" --target "${targets[@]}" ||
    fail "the build failed (see above)"
  say "Built ${targets[*]/#transnormer/build/transnormer}"
}

install_packages
make_venv
add_cuda_compiler
build
