# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Rows that clusters of blocks share, and rows that no vectors divide.
# usage: rows.py DIR
import json
import os
import sys


def write(name, dtype, shape, weights, nodes, outputs):
    inputs = {"x": {"dtype": dtype, "shape": shape}, "r": {"dtype": dtype, "shape": shape}}
    inputs.update({w: {"dtype": dtype, "shape": shape[-1:]} for w in weights})
    used = {i for n in nodes for i in n["inputs"]}
    graph = {"ridgeline": 1, "name": name, "inputs": {k: v for k, v in inputs.items() if k in used}, "nodes": nodes,
             "outputs": outputs}
    with open(os.path.join(sys.argv[1], name + ".json"), "w") as f:
        json.dump(graph, f)


def node(op, inputs, outputs, **attrs):
    return {"op": op, "inputs": inputs, "outputs": outputs, "attrs": attrs}


for width in (65536, 131072, 4095, 77):
    shape = [512 if width > 4096 else 65536, width]
    for dtype in ("bf16", "f32"):
        end = f"{width}_{dtype}"
        write("softmax_" + end, dtype, shape, "", [node("softmax", ["x"], ["y"], dim=1)], ["y"])
        write("norm_" + end, dtype, shape, "wb",
              [node("add", ["x", "r"], ["h"]), node("layer_norm", ["h", "w", "b"], ["y"])], ["h", "y"])
        write("quantised_" + end, dtype, shape, "w",
              [node("rms_norm", ["x", "w"], ["n"]),
               node("quantize", ["n"], ["q", "s"], dtype="f8e4m3", granularity="token")], ["q", "s"])
