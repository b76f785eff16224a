# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products whose operands are read an element at a time, as their rows start anywhere: odd.py DIR"""
import json
import sys


def write(name, m, n, k, dtype="bf16", weights=None, gated=False, along_k=(True, True)):
    weights = weights or dtype
    graph = {"ridgeline": 1, "name": name, "inputs": {"x": {"dtype": dtype, "shape": [m, k]}}, "parameters": {}, "nodes": []}
    for i in range(2 if gated else 1):
        w = f"w{i}"
        graph["parameters"][w] = {"dtype": weights, "shape": [n, k] if along_k[i] else [k, n]}
        if weights != dtype:
            graph["nodes"].append({"op": "cast", "inputs": [w], "outputs": [f"c{i}"], "attrs": {"dtype": dtype}})
            w = f"c{i}"
        graph["nodes"].append({"op": "matmul", "inputs": ["x", w], "outputs": [f"p{i}"], "attrs": {"transpose_b": along_k[i]}})
    graph["outputs"] = ["p0"]
    if gated:
        graph["nodes"] += [{"op": "silu", "inputs": ["p0"], "outputs": ["s"]}, {"op": "mul", "inputs": ["s", "p1"], "outputs": ["y"]}]
        graph["outputs"] = ["y"]
    with open(f"{sys.argv[1]}/{name}.json", "w") as f:
        json.dump(graph, f)


write("odd_plain", 64, 1024, 1001)
write("odd_half", 17, 4097, 4097, dtype="f16")
write("odd_gate", 31, 77, 333, gated=True, along_k=(True, False))
write("odd_gate_bytes", 3, 77, 4097, weights="i8", gated=True, along_k=(False, True))
write("odd_gate_float8", 64, 127, 333, dtype="f16", weights="f8e4m3", gated=True, along_k=(False, False))
