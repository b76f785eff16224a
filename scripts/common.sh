# shellcheck shell=bash
# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Sourced by the scripts beside it: strict mode, the project's root as working directory (`called_from`: what it was), messages.
set -euo pipefail
called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Objects are the same in every checkout, so that ccache shares them.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

say() { printf '\n==> %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# configure PRESET
configure() {
  local log
  say "Configuring build/$1"
  log=$(mktemp)
  if ! cmake --preset "$1" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    die "cmake --preset $1 failed; after a change of compiler or LLVM, removing build/$1 helps"
  fi
  rm -f "$log"
}

# build PRESET [ninja targets]
build() {
  local preset=$1; shift
  say "Building build/$preset${*:+ ($*)}"
  ninja -C "build/$preset" "$@" || die "the build in build/$preset failed; the compiler's message is above"
}
