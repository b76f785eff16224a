# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Graphs whose products warpgroups multiply on Hopper. usage: warpgroups.py FOLDER
import json
import sys


class Graph:
    def __init__(self, name, **inputs):
        self.name, self.nodes = name, []
        self.inputs = {n: {"dtype": dtype, "shape": shape} for n, (dtype, *shape) in inputs.items()}

    def node(self, name, op, *inputs, **attrs):
        self.nodes.append({"op": op, "inputs": list(inputs), "outputs": [name], "attrs": attrs})
        return name

    def write(self, *outputs):
        graph = {"ridgeline": 1, "name": self.name, "inputs": self.inputs, "nodes": self.nodes, "outputs": list(outputs)}
        with open(f"{sys.argv[1]}/{self.name}.json", "w") as f:
            json.dump(graph, f)


def linear(name, m, n, k, dtype="bf16", **more):
    g = Graph(name, a=(dtype, m, k), w=(dtype, n, k), b=(dtype, n), **more)
    g.node("h", "linear", "a", "w", "b")
    return g


g = Graph("plain", a=("bf16", 4096, 4096), w=("bf16", 4096, 4096))
g.node("y", "linear", "a", "w")
g.write("y")

g = linear("bias_gelu", 512, 11008, 4096)
g.node("y", "gelu", "h", approximate="tanh")
g.write("y")

g = linear("bias_residual", 8192, 4096, 11008, r=("bf16", 8192, 4096))
g.node("y", "add", "h", "r")
g.write("y")

g = Graph("swiglu", a=("bf16", 512, 4096), w=("bf16", 11008, 4096), v=("bf16", 11008, 4096))
g.node("g", "linear", "a", "w")
g.node("u", "linear", "a", "v")
g.node("s", "silu", "g")
g.node("y", "mul", "s", "u")
g.write("y")

# Heads are apart in memory on both sides of the product: tensor maps of four dimensions.
g = Graph("heads", q=("f16", 4, 1024, 16, 128), k=("f16", 4, 1024, 16, 128))
g.node("qh", "permute", "q", dims=[0, 2, 1, 3])
g.node("kh", "permute", "k", dims=[0, 2, 1, 3])
g.node("s", "matmul", "qh", "kh", transpose_b=True)
g.node("y", "mul", "s", 0.125)
g.write("y")

# Neither operand has K contiguous; scales of rows, and results of 8 bits.
g = Graph("scaled", a=("bf16", 2048, 4096), w=("bf16", 2048, 4096), s=("f32", 4096, 1))
g.node("h", "matmul", "a", "w", transpose_a=True)
g.node("t", "mul", "h", "s")
g.node("y", "cast", "t", dtype="f8e4m3")
g.write("h", "y")

# An odd N: elements are loaded and stored one by one.
g = linear("odd", 2000, 2049, 1024, r=("bf16", 2000, 2049))
g.node("s", "silu", "h")
g.node("y", "add", "s", "r")
g.write("h", "y")

# Left operands that are computed: from f32 and with a vector along K, where few tiles lie beside each other; where many do.
g = Graph("left", x=("f32", 8192, 4096), c=("bf16", 4096), w=("bf16", 512, 4096))
g.node("z", "add", "x", "c")
g.node("h", "cast", "z", dtype="bf16")
g.node("y", "linear", "h", "w")
g.write("y")
g = Graph("left_gate", x=("bf16", 8192, 4096), u=("bf16", 8192, 4096), w=("bf16", 256, 4096))
g.node("s", "silu", "x")
g.node("h", "mul", "s", "u")
g.node("y", "linear", "h", "w")
g.write("y")
g = Graph("left_many", x=("bf16", 512, 4096), w=("bf16", 11008, 4096))
g.node("h", "silu", "x")
g.node("y", "linear", "h", "w")
g.write("y")
g = Graph("left_shared", x=("f32", 8192, 4096), w=("bf16", 512, 4096))
g.node("h", "cast", "x", dtype="bf16")
g.node("y", "linear", "h", "w")
g.node("z", "relu", "h")
g.write("y", "z")

# No rows that a tensor memory copy could read; single precision.
g = Graph("pitch", a=("bf16", 4096, 4100), w=("bf16", 4096, 4100))
g.node("x", "slice", "a", dim=1, start=0, end=4096)
g.node("z", "slice", "w", dim=1, start=0, end=4096)
g.node("y", "linear", "x", "z")
g.write("y")
g = Graph("single", a=("f32", 1024, 1024), w=("f32", 1024, 1024))
g.node("y", "linear", "a", "w")
g.write("y")


# Numbers of 8 bits.
def scaled_matmul(name, b="f8e4m3", sa=("f32", 4096), sb=("f32", 4096), out="bf16", **attrs):
    g = Graph(name, a=("f8e4m3", 4096, 4096), w=(b, 4096, 4096), sa=sa, sb=sb)
    g.node("y", "scaled_matmul", "a", "w", "sa", "sb", transpose_b=True, out_dtype=out, **attrs)
    g.write("y")


TOKEN = {"granularity_a": "token", "granularity_b": "token"}
scaled_matmul("f8_token", b="f8e5m2", **TOKEN)
scaled_matmul("f8_f32", out="f32", **TOKEN)
scaled_matmul("f8_fast", out="f32", fast_accumulate=True, **TOKEN)
scaled_matmul("f8_block", sa=("f32", 4096, 32), sb=("f32", 32, 32), granularity_a="block", block_a=[1, 128],
              granularity_b="block", block_b=[128, 128])
scaled_matmul("f8_block_fast", sa=("f32", 4096, 32), sb=("f32", 32, 32), granularity_a="block", block_a=[1, 128],
              granularity_b="block", block_b=[128, 128], fast_accumulate=True, out="f32")
g = Graph("f8_block_narrow", a=("f8e4m3", 4096, 4096), w=("f8e4m3", 96, 4096), sa=("f32", 4096, 32), sb=("f32", 1, 32))
g.node("y", "scaled_matmul", "a", "w", "sa", "sb", transpose_b=True, out_dtype="bf16", granularity_a="block",
       block_a=[1, 128], granularity_b="block", block_b=[128, 128])
g.write("y")
g = Graph("i8", a=("i8", 4096, 4096), w=("i8", 4096, 4096))
g.node("y", "matmul", "a", "w", transpose_b=True)
g.write("y")


# What is quantised in blocks of a row, behind the product; an operand beside it is read ahead, and two products share the block.
def quantised(name, block, m=4096, n=11008, k=4096, gate=False, residual=False, **attrs):
    more = {"v": ("bf16", n, k)} if gate else {"r": ("bf16", m, n)} if residual else {}
    g = linear(name, m, n, k, **more)
    x = g.node("s", "silu", "h")
    if gate:
        g.node("u", "linear", "a", "v")
        x = g.node("t", "mul", x, "u")
    if residual:
        x = g.node("t", "add", x, "r")
    names = ["q", "scale"] + (["zero"] if "scheme" in attrs else [])
    g.nodes.append({"op": "quantize", "inputs": [x], "outputs": names,
                    "attrs": {"dtype": "f8e4m3", "granularity": "block", "block": [1, block], **attrs}})
    g.write(*names)


quantised("quant_128", 128)
quantised("quant_64_odd", 64, m=4099)
quantised("quant_32_powers", 32, k=8192, scale_dtype="f8e8m0", residual=True)
quantised("quant_16_gate", 16, gate=True)
quantised("quant_128_zero", 128, dtype="i8", scheme="asymmetric")
quantised("quant_padded", 128, n=11000)
quantised("quant_token", 4096, n=4096)
g = linear("head_norm", 4096, 4096, 4096, scale=("bf16", 128))
g.node("z", "reshape", "h", shape=[4096, 32, 128])
g.node("y", "rms_norm", "z", "scale")
g.write("y")

# Heads of four sequences beside each other, results that go to heads, and a gradient of weights: views that tensor maps describe.
g = Graph("heads_in", a=("bf16", 4, 32, 512, 128), w=("bf16", 4096, 4096))
g.node("p", "permute", "a", dims=[0, 2, 1, 3])
g.node("f", "reshape", "p", shape=[4, 512, 4096])
g.node("y", "linear", "f", "w")
g.write("y")
g = Graph("heads_out", a=("bf16", 4, 512, 4096), w=("bf16", 4096, 4096))
g.node("h", "linear", "a", "w")
g.node("f", "reshape", "h", shape=[4, 512, 32, 128])
g.node("y", "permute", "f", dims=[0, 2, 1, 3])
g.write("y")
g = Graph("heads_gradient", a=("bf16", 4, 32, 512, 128), x=("bf16", 2048, 4096))
g.node("p", "permute", "a", dims=[1, 3, 0, 2])
g.node("f", "reshape", "p", shape=[4096, 2048])
g.node("y", "matmul", "f", "x")
g.write("y")
