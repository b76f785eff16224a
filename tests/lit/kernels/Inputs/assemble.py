# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The PTX of graphs through ptxas for sm_80 and sm_90a; a line a graph and architecture, with what ptxas has to complain of.
# usage: assemble.py PTXAS GRAPH.json...
import os
import re
import subprocess
import sys

ptxas, graphs = sys.argv[1], sys.argv[2:]
bad = 0
for graph in graphs:
    for arch in ("sm_80", "sm_90a"):
        name = os.path.basename(graph)[:-5] + " " + arch
        ptx = graph[:-5] + "." + arch + ".ptx"
        with open(ptx, "wb") as f:
            if subprocess.run(["ridgeline", "dump", graph, "--stage", "ptx", "--target", arch, "--cache", "off", "-q"], stdout=f).returncode:
                print("FAILED", name, "the compiler")
                bad += 1
                continue
        # As the runtime has it done: as code to be linked, where that takes all of it.
        with open(ptx) as f:
            text = f.read()
        linked = [] if "setmaxnreg" in text or "barrier.cluster.arrive.relaxed" in text else ["-c"]
        said = subprocess.run([ptxas, *linked, "-arch", arch, "-v", "-warn-spills", "-warn-lmem-usage", "-o", os.devnull, ptx],
                              capture_output=True, text=True)
        complaint = re.findall(r".*(?:[1-9]\d* bytes (?:stack frame|spill|lmem)|C75|error|warning).*", said.stderr + said.stdout)
        if said.returncode or complaint:
            print("FAILED", name, *complaint[:3])
            bad += 1
        else:
            used = [int(r) for r in re.findall(r"Used (\d+) registers", said.stderr + said.stdout)]
            print("ok", name, len(used), "kernels, at most", max(used), "registers")
print("all clean" if not bad else f"{bad} are not")
sys.exit(bad != 0)
