# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Graphs at the limits that the planner keeps. usage: limits.py FOLDER
import json
import sys


class Graph:
    def __init__(self, name, **inputs):
        self.name, self.inputs, self.nodes = name, {}, []
        for n, (dtype, shape) in inputs.items():
            self.input(n, dtype, shape)

    def input(self, name, dtype, shape):
        self.inputs[name] = {"dtype": dtype, "shape": shape}
        return name

    def node(self, name, op, *inputs, **attrs):
        node = {"op": op, "inputs": list(inputs), "outputs": [name]}
        if attrs:
            node["attrs"] = attrs
        self.nodes.append(node)
        return name

    def write(self, *outputs):
        graph = {"ridgeline": 1, "name": self.name, "inputs": self.inputs, "nodes": self.nodes, "outputs": list(outputs)}
        with open(f"{sys.argv[1]}/{self.name}.json", "w") as f:
            json.dump(graph, f)


def arguments(dtype):
    g = Graph("arguments_" + dtype)
    last = g.input("x0", dtype, [4096, 256])
    for i in range(1, 507):
        last = g.node(f"a{i}", "add", last, g.input(f"x{i}", dtype, [4096, 256]))
    g.write(last)


def results(dtype):
    g = Graph("results_" + dtype, x=(dtype, [4096, 256]))
    g.write(*[g.node(f"y{i}", "mul", "x", 0.5 + i) for i in range(250)])


def registers(dtype, live):
    """As many values live at once as the planner admits to one kernel, and more."""
    g = Graph(f"registers_{dtype}_{live}", x=(dtype, [100000]))
    last, values = "x", []
    for i in range(live):
        values.append(g.node(f"v{i}", "sin", values[-1] if values else "x"))
        last = g.node(f"a{i}", "add", last, values[-1])
    for i in reversed(range(live)):
        last = g.node(f"b{i}", "sub", values[i], last)
    g.write(last)


def pieces():
    g = Graph("pieces")
    names = [g.node(f"s{i}", "silu", g.input(f"x{i}", "bf16", [8 + i % 3, 512])) for i in range(100)]
    g.write(g.node("y", "cat", *names, dim=0))


def columns():
    g = Graph("columns")
    names = [g.node(f"s{i}", "silu", g.input(f"x{i}", "bf16", [4096, 3 + i % 5])) for i in range(8)]
    g.write(g.node("y", "cat", *names, dim=1))


def chain():
    g, last = Graph("chain", x=("bf16", [65536])), "x"
    for i in range(400):
        last = g.node(f"e{i}", ["exp", "log1p", "sin", "gelu"][i % 4], last)
    g.write(last)


arguments("f32")
arguments("bf16")
results("f32")
results("bf16")
registers("f32", 40)
registers("f32", 150)
pieces()
columns()
chain()
