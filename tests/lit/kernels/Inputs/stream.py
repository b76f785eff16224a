# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Graphs of products of few rows, whose weights stream from memory. usage: stream.py FOLDER
import json
import sys


def write(name, m, n, k, dtype="bf16", weights=1, granularity="axis", zero=False, behind=(), pitch=None, strict=False, narrow="i8", along_n=False):
    """`weights`: bytes of an element, `narrow`: their type where that is one; `pitch`: elements of a row of them in memory; `along_n`:
    rows are of K. (16 bits alone.)"""
    name = "few_" + name
    inputs = {"a": {"dtype": dtype, "shape": [m, k]}}
    nodes, operands = [], []
    for i in range(2 if "gate" in behind else 1):
        w = f"w{i}"
        inputs[w] = {"dtype": narrow if weights == 1 else dtype, "shape": [k, pitch or n] if along_n else [n, pitch or k]}
        if pitch and along_n:
            nodes.append({"op": "slice", "inputs": [w], "outputs": [w + "s"], "attrs": {"dim": 1, "start": 8, "end": n + 8}})
            w += "s"
        elif pitch:
            nodes.append({"op": "slice", "inputs": [w], "outputs": [w + "s"], "attrs": {"dim": 1, "start": 0, "end": k}})
            w += "s"
        if weights == 1:
            shape = {"axis": [n], "tensor": [], "block": [n // 64, k // 64]}[granularity]
            attrs = {"dtype": dtype, "granularity": granularity}
            attrs.update({"axis": 0} if granularity == "axis" else {"block": [64, 64]} if granularity == "block" else {})
            inputs[f"s{i}"] = {"dtype": "f32", "shape": shape}
            more = []
            if zero:
                inputs[f"z{i}"] = {"dtype": "i32", "shape": shape}
                more = [f"z{i}"]
            nodes.append({"op": "dequantize", "inputs": [w, f"s{i}", *more], "outputs": [w + "d"], "attrs": attrs})
            w += "d"
        nodes.append({"op": "matmul" if along_n else "linear", "inputs": ["a", w], "outputs": [f"y{i}"]})
        operands.append(f"y{i}")
    y = operands[0]
    if "gate" in behind:
        nodes.append({"op": "silu", "inputs": ["y0"], "outputs": ["g"]})
        nodes.append({"op": "mul", "inputs": ["g", "y1"], "outputs": ["u"]})
        y = "u"
    if "residual" in behind:
        inputs["r"] = {"dtype": dtype, "shape": [m, n]}
        nodes.append({"op": "add", "inputs": [y, "r"], "outputs": ["v"]})
        y = "v"
    graph = {"ridgeline": 1, "name": name, "inputs": inputs, "nodes": nodes, "outputs": [y]}
    if strict:
        graph["numerics"] = "strict"
    with open(f"{sys.argv[1]}/{name}.json", "w") as f:
        json.dump(graph, f)


write("one", 1, 11008, 4096)
write("float", 1, 11008, 4096, "f16", narrow="f8e5m2")
write("floats", 16, 11008, 4096, narrow="f8e4m3")
write("wide", 1, 4096, 11008, weights=2)
write("plain", 16, 11008, 4096, weights=2)
write("many", 64, 11008, 4096, behind=("residual",))
write("middle", 32, 11008, 4096, "f16", granularity="tensor")
write("gated", 8, 5504, 4096, behind=("gate",))
write("odd", 5, 5501, 4112)
write("tall", 64, 11008, 4096, weights=2)
write("block", 16, 4096, 4096, granularity="block")
write("zero", 16, 4096, 4096, zero=True)
write("strict", 16, 11008, 4096, strict=True)
write("pitch", 16, 11008, 4096, pitch=4100)
write("rows", 129, 11008, 4096, weights=2)
write("crowded", 64, 28672, 4096)  # as many registers as there are
write("crowded_gate", 17, 11007, 4096, weights=2, behind=("gate", "residual"))
write("columns", 16, 11008, 4096, weights=2, along_n=True)
write("columns_deep", 33, 4096, 11008, "f16", weights=2, along_n=True, behind=("residual",))
write("columns_gated", 8, 11000, 4096, weights=2, along_n=True, behind=("gate",), pitch=11024)
write("columns_pitch", 16, 11008, 4096, weights=2, along_n=True, pitch=11028)
write("small", 4, 512, 512, weights=2)
# More rows than are streamed.
write("more", 512, 11008, 4096)
write("more_floats", 200, 4096, 4112, "f16", granularity="tensor", narrow="f8e4m3", behind=("residual",))
write("more_gated", 512, 11008, 4096, behind=("gate",))
write("more_tight", 4096, 264, 512, behind=("gate", "residual"))
write("more_zero", 512, 11008, 4096, zero=True)
write("more_odd", 512, 11004, 4096)
