#!/usr/bin/env python3
# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the project's benchmark rows and prints what was predicted beside what was measured.

  rows.py [--ridgeline PROGRAM] [--target T] [--only A,B] [--graphs DIR] [--small]

--graphs DIR writes the rows' graph files there and runs nothing. --small divides the leading dimension by 16, for a CPU.
Needs Python 3.9 and the program, nothing else. The figures of past runs are in NOTES.md.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile


def tensor(dtype, *shape):
    return {"dtype": dtype, "shape": list(shape)}


def node(op, inputs, outputs, **attrs):
    n = {"op": op, "inputs": inputs, "outputs": outputs if isinstance(outputs, list) else [outputs]}
    if attrs:
        n["attrs"] = attrs
    return n


def graph(name, inputs, nodes, outputs, parameters=None):
    g = {"ridgeline": 1, "name": name, "inputs": inputs, "nodes": nodes, "outputs": outputs}
    if parameters:
        g["parameters"] = parameters
    return g


def gelu(x, y):
    return [node("mul", [x, x], "x2"), node("mul", ["x2", x], "x3"), node("mul", ["x3", 0.044715], "cubic"),
            node("add", ["cubic", x], "inner"), node("mul", ["inner", 0.7978845608028654], "scaled"),
            node("tanh", ["scaled"], "t"), node("add", ["t", 1.0], "t1"), node("mul", [x, 0.5], "half"),
            node("mul", ["half", "t1"], y)]


def layer_norm_backward(rows, width):
    bf = lambda *s: tensor("bf16", *s)
    nodes = [
        node("cast", ["x"], "h", dtype="f32"), node("cast", ["dy"], "d", dtype="f32"),
        node("cast", ["w"], "wf", dtype="f32"), node("mean", ["h"], "mu", dims=[1], keepdim=True),
        node("sub", ["h", "mu"], "c"), node("square", ["c"], "c2"), node("mean", ["c2"], "v", dims=[1], keepdim=True),
        node("add", ["v", 1e-5], "ve"), node("rsqrt", ["ve"], "r"), node("mul", ["c", "r"], "xh"),
        node("mul", ["d", "wf"], "g"), node("mean", ["g"], "m1", dims=[1], keepdim=True),
        node("mul", ["g", "xh"], "gx"), node("mean", ["gx"], "m2", dims=[1], keepdim=True),
        node("mul", ["xh", "m2"], "t1"), node("sub", ["g", "m1"], "t2"), node("sub", ["t2", "t1"], "t3"),
        node("mul", ["t3", "r"], "t4"), node("cast", ["t4"], "dx", dtype="bf16"), node("mul", ["d", "xh"], "dxh"),
        node("sum", ["dxh"], "dw", dims=[0]), node("sum", ["d"], "db", dims=[0])]
    return graph("layer_norm_backward", {"x": bf(rows, width), "w": bf(width), "dy": bf(rows, width)}, nodes,
                 ["dx", "dw", "db"])


def linear(name, m, n, k, bias=False, nodes=(), outputs=("y",), residual=False):
    inputs = {"a": tensor("bf16", m, k)}
    if residual:
        inputs["r"] = tensor("bf16", m, n)
    parameters = {"w": tensor("bf16", n, k)}
    operands = ["a", "w"]
    if bias:
        parameters["b"] = tensor("bf16", n)
        operands.append("b")
    first = "p" if nodes else "y"
    return graph(name, inputs, [node("linear", operands, first), *nodes], list(outputs), parameters)


def rows(scale):
    bf = lambda *s: tensor("bf16", *s)
    r = 16384 // scale
    yield graph("gelu_512", {"x": bf(512, 11008)}, gelu("x", "y"), ["y"])
    yield graph("gelu", {"x": bf(r, 11008)}, gelu("x", "y"), ["y"])
    yield graph("swiglu", {"a": bf(r, 11008), "b": bf(r, 11008)},
                [node("silu", ["a"], "s"), node("mul", ["s", "b"], "y")], ["y"])
    yield graph("layer_norm", {"x": bf(r, 4096), "w": bf(4096), "b": bf(4096)},
                [node("layer_norm", ["x", "w", "b"], "y")], ["y"])
    yield layer_norm_backward(r, 4096)
    yield graph("rms_norm_quantize", {"x": bf(r, 4096), "w": bf(4096)},
                [node("rms_norm", ["x", "w"], "n"),
                 node("quantize", ["n"], ["q", "s"], dtype="f8e4m3", granularity="token")], ["q", "s"])
    yield graph("add_rms_norm", {"x": bf(r, 4096), "r": bf(r, 4096), "w": bf(4096)},
                [node("add", ["x", "r"], "h"), node("rms_norm", ["h", "w"], "y")], ["h", "y"])
    yield graph("softmax_masked", {"x": bf(r, 8192), "m": bf(8192)},
                [node("mul", ["x", 0.125], "t"), node("add", ["t", "m"], "u"), node("softmax", ["u"], "y", dim=1)],
                ["y"])
    yield graph("log_softmax", {"x": bf(8192 // scale, 50304)}, [node("log_softmax", ["x"], "y", dim=1)], ["y"])
    yield graph("cross_entropy", {"x": bf(8192 // scale, 128256), "t": tensor("i64", 8192 // scale)},
                [node("cross_entropy", ["x", "t"], "y")], ["y"])
    yield graph("softmax_long", {"x": tensor("f32", 4096 // scale, 131072)}, [node("softmax", ["x"], "y", dim=1)],
                ["y"])
    yield graph("softmax_long_few", {"x": tensor("f32", 16, 131072)}, [node("softmax", ["x"], "y", dim=1)], ["y"])
    yield graph("layer_norm_long", {"x": bf(1024 // scale, 65536), "w": bf(65536), "b": bf(65536)},
                [node("layer_norm", ["x", "w", "b"], "y")], ["y"])
    yield graph("softmax_odd", {"x": bf(524288 // scale, 77)}, [node("softmax", ["x"], "y", dim=1)], ["y"])
    yield graph("rms_norm_odd", {"x": bf(16384 // scale, 4097), "w": bf(4097)},
                [node("rms_norm", ["x", "w"], "y")], ["y"])
    yield graph("column_sum", {"g": bf(65536 // scale, 4096)},
                [node("cast", ["g"], "h", dtype="f32"), node("sum", ["h"], "y", dims=[0])], ["y"])
    yield graph("sum_of_squares", {"g": bf((1 << 28) // scale)},
                [node("cast", ["g"], "h", dtype="f32"), node("square", ["h"], "q"), node("sum", ["q"], "y")], ["y"])
    yield graph("transpose_add", {"a": bf(8192, 8192 // scale), "b": bf(8192 // scale, 8192)},
                [node("permute", ["a"], "t", dims=[1, 0]), node("add", ["t", "b"], "y")], ["y"])
    yield graph("embedding", {"w": bf(50304 // scale, 4096), "i": tensor("i64", 65536 // scale)},
                [node("embedding", ["w", "i"], "e"), node("mul", ["e", 0.5], "y")], ["y"])
    m = 4096 // scale
    yield linear("gemm", m, 4096, 4096)
    yield linear("gemm_bias_gelu", 512, 11008, 4096, bias=True, nodes=gelu("p", "y"))
    yield linear("gemm_bias_residual", 512, 4096, 11008, bias=True, nodes=[node("add", ["p", "r"], "y")], residual=True)
    for m in (1, 16, 64):
        yield linear(f"decode_{m}", m, 11008, 4096)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    ap.add_argument("--ridgeline", default=os.path.join(here, "../../build/release/bin/ridgeline"))
    ap.add_argument("--target", default="cuda")
    ap.add_argument("--only", default="", help="names or parts of names, separated by commas")
    ap.add_argument("--graphs", help="write the graph files to this folder")
    ap.add_argument("--small", action="store_true")
    args = ap.parse_args()
    wanted = [g for g in rows(16 if args.small else 1)
              if not args.only or any(part in g["name"] for part in args.only.split(","))]
    folder = args.graphs or tempfile.mkdtemp(prefix="ridgeline-rows-")
    os.makedirs(folder, exist_ok=True)
    files = []
    for g in wanted:
        files.append(os.path.join(folder, g["name"] + ".json"))
        with open(files[-1], "w") as f:
            json.dump(g, f, indent=1)
    if args.graphs:
        return 0
    print(f"{'row':22s} {'kernels':>7s} {'predicted':>10s} {'measured':>10s}  {'ratio':>5s}  of copy")
    near = done = 0
    for path in files:
        name = os.path.basename(path)[:-5]
        run = subprocess.run([args.ridgeline, "bench", path, "--target", args.target, "--json"], capture_output=True,
                             text=True)
        if run.returncode:
            print(f"{name:22s} {run.stderr.strip()[:120]}")
            continue
        total, kernels = (lambda r: (r["total"], len(r["kernels"])))(json.loads(run.stdout))
        ratio = total["measured_us"] / total["predicted_us"]
        done += 1
        near += math.fabs(ratio - 1) <= 0.25
        print(f"{name:22s} {kernels:7d} {total['predicted_us']:10.1f} {total['measured_us']:10.1f}  {ratio:5.2f}  "
              f"{total['of_copy']:.3f}", flush=True)
    print(f"within 25 % of the prediction: {near} of {done}")
    return 0 if done == len(files) else 1


if __name__ == "__main__":
    sys.exit(main())
