# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Run by ctest (test `lit`), or by hand: lit -v tests/lit, with --param build=DIR for another build than build/release.
import os
import shutil
import sys

import lit.formats

# lit defines `config` and `lit_config`.
source_root = os.path.dirname(os.path.abspath(__file__))
project_root = os.path.dirname(os.path.dirname(source_root))
build = os.path.abspath(lit_config.params.get("build", os.path.join(project_root, "build", "release")))
llvm = lit_config.params.get("llvm", "/usr/lib/llvm-22")
tools = os.path.join(build, "bin")

config.name = "ridgeline"
config.test_format = lit.formats.ShTest(execute_external=False)
config.test_source_root = source_root
config.test_exec_root = os.path.join(build, "tests", "lit")
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "lit.cfg.py", "CMakeLists.txt"]

# FileCheck, not, count and split-file are LLVM's; the project's own tools come first.
config.environment["PATH"] = os.pathsep.join([tools, os.path.join(llvm, "bin"), os.environ.get("PATH", "")])
# Tests see neither the user's cache nor a locale.
config.environment["XDG_CACHE_HOME"] = os.path.join(config.test_exec_root, "cache")
config.environment["LC_ALL"] = "C.UTF-8"

for tool in ("ridge-opt",):
    if not os.path.exists(os.path.join(tools, tool)):
        lit_config.fatal(f"{tool} is not in {tools}: build it first, or name the build with --param build=DIR")
for tool in ("FileCheck", "not"):
    if not os.path.exists(os.path.join(llvm, "bin", tool)):
        lit_config.fatal(f"{tool} is not in {llvm}/bin: install llvm-22-tools (scripts/setup does)")

config.substitutions.append(("%python", sys.executable))
config.substitutions.append(("%graphs", os.path.join(project_root, "examples", "graphs")))
config.substitutions.append(("%cases", os.path.join(project_root, "tests", "cases")))

# `REQUIRES: ridgeline`: the command line is built. `REQUIRES: ptxas`: a CUDA toolkit's assembler is on the path.
if os.path.exists(os.path.join(tools, "ridgeline")):
    config.available_features.add("ridgeline")
ptxas = shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")
if ptxas:
    config.available_features.add("ptxas")
    config.substitutions.append(("%ptxas", ptxas))
