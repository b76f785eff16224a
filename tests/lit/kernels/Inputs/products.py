# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Products that come to each kernel and tile that the planner has, most with an epilogue. usage: products.py FOLDER
import json
import sys


def write(name, m, n, k, dtype="bf16", along_k=True, epilogue=True, gated=False):
    weight = {"dtype": dtype, "shape": [n, k] if along_k else [k, n]}
    graph = {"ridgeline": 1, "name": name, "inputs": {"x": {"dtype": dtype, "shape": [m, k]}}, "parameters": {"w": weight}}
    product = lambda w, out: {"op": "matmul", "inputs": ["x", w], "outputs": [out], "attrs": {"transpose_b": along_k}}
    graph["nodes"] = [product("w", "p")]
    last = "p"
    if gated:
        graph["parameters"]["v"] = weight
        graph["nodes"] += [product("v", "q"), {"op": "silu", "inputs": ["q"], "outputs": ["s"]},
                           {"op": "mul", "inputs": ["s", "p"], "outputs": ["g"]}]
        last = "g"
    if epilogue:
        graph["parameters"]["b"] = {"dtype": dtype, "shape": [n]}
        graph["inputs"]["r"] = {"dtype": dtype, "shape": [m, n]}
        graph["nodes"] += [{"op": "add", "inputs": [last, "b"], "outputs": ["h"]},
                           {"op": "gelu", "inputs": ["h"], "outputs": ["a"], "attrs": {"approximate": "tanh"}},
                           {"op": "add", "inputs": ["a", "r"], "outputs": ["y"]}]
        last = "y"
    graph["outputs"] = [last]
    with open(f"{sys.argv[1]}/{name}.json", "w") as f:
        json.dump(graph, f)


write("large", 4096, 4096, 4096)
write("large_along_n", 4096, 4096, 4096, along_k=False)
write("gated", 4096, 11008, 4096, gated=True, epilogue=False)
write("half", 1000, 1000, 1000, dtype="f16")
write("odd", 300, 301, 303)
write("rows_64", 64, 11008, 4096)
write("rows_16", 16, 4096, 4096)
write("row", 1, 11008, 4096)
write("row_along_n", 1, 4096, 4096, along_k=False)
write("rows_of_f32", 8, 4096, 4096, dtype="f32")
write("f32", 2048, 2048, 2048, dtype="f32")
write("integers", 200, 200, 200, dtype="i8", epilogue=False)
