#!/bin/sh
# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# runtime_deps.sh LIBRARY: fails unless libridgeline_runtime.so needs libc and libstdc++ (with the parts that each brings)
# alone, shows the runtime's C interface and nothing else, and holds no code of LLVM or MLIR.
set -eu
library=$1
tool=$(command -v readelf || command -v llvm-readelf-22 || command -v llvm-readelf) || {
  echo "readelf (binutils or LLVM) is needed" >&2
  exit 1
}
status=0

needed=$("$tool" -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ -n "$needed" ] || { echo "no dependencies read: is '$library' a shared library?" >&2; exit 1; }
for name in $needed; do
  case $name in
    libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1 | ld-linux-*.so.* | libstdc++.so.6 | libgcc_s.so.1) ;;
    *) echo "depends on $name" >&2; status=1 ;;
  esac
done

expected='rl_bind rl_count rl_kernel_count rl_last_error rl_load rl_read rl_run rl_tensor rl_unload rl_version'
shown=$("$tool" -W --dyn-syms "$library" | awk '$5 != "LOCAL" && $7 != "UND" && $8 != "" && $1 ~ /^[0-9]+:$/ {print $8}' | sort | tr '\n' ' ')
if [ "$shown" != "$expected " ]; then
  echo "shows:    $shown" >&2
  echo "expected: $expected" >&2
  status=1
fi

wanted=$("$tool" -W --dyn-syms "$library" | awk '$7 == "UND" {print $8}' | grep -E '^(cu[A-Z]|cuda|_ZN4(llvm|mlir)|LLVM|mlir)' || true)
if [ -n "$wanted" ]; then
  echo "undefined symbols of CUDA or LLVM: $wanted" >&2
  status=1
fi
# Names of their classes stay in the type information that exceptions and virtual calls need.
if grep -a -q -E 'N4(llvm|mlir)[0-9]' "$library"; then
  echo "holds code of LLVM or MLIR" >&2
  status=1
fi
exit $status
