# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Functions in the ridge dialect that are too long to write down. usage: graphs.py KIND N
import sys


class Function:
    def __init__(self, inputs):
        self.inputs, self.types, self.body = inputs, dict(inputs), []

    def op(self, name, text, operands, type):
        self.types[name] = type
        given = ", ".join(self.types[o] for o in operands)
        self.body.append(f'  %{name} = {text.format(*("%" + o for o in operands))} {{ridge.name = "{name}"}} : ({given}) -> {type}')
        return name

    def map(self, name, fn, operands, type):
        return self.op(name, f"ridge.map {fn}(" + ", ".join("{}" for _ in operands) + ")", operands, type)

    def print(self, *outputs):
        arguments = ", ".join(f'%{n}: {t} {{ridge.name = "{n}"}}' for n, t in self.inputs)
        types = ", ".join(self.types[o] for o in outputs)
        print(f"func.func @f({arguments}) -> ({types}) {{")
        print("  %lit = ridge.literal 1.5")
        print("\n".join(self.body))
        print("  return " + ", ".join("%" + o for o in outputs) + f" : {types}\n}}")


def inputs(n, type):
    return [(f"x{i}", type) for i in range(n)]


def sums(n):
    """A sum of n tensors."""
    t = "tensor<64x64xf32>"
    f, last = Function(inputs(n, t)), "x0"
    for i in range(1, n):
        last = f.map(f"a{i}", "add", [last, f"x{i}"], t)
    f.print(last)


def many(n):
    """n outputs of an input each."""
    t = "tensor<1000xf32>"
    f = Function(inputs(n, t))
    f.print(*[f.map(f"y{i}", "relu", [f"x{i}"], t) for i in range(n)])


def wide(n):
    """n values that are used twice, the second time from the last to the first."""
    t = "tensor<100000xf32>"
    f = Function([("x", t)])
    f.types["lit"] = "tensor<f32>"
    last, values = "x", []
    for i in range(n):
        values.append(f.map(f"v{i}", "mul", [values[-1] if values else "x", "lit"], t))
        last = f.map(f"a{i}", "add", [last, values[-1]], t)
    for i in reversed(range(n)):
        last = f.map(f"b{i}", "sub", [values[i], last], t)
    f.print(last)


def doubling(n):
    """Every step reads the one before at two indices."""
    extent, last = 4096, "x"
    f = Function([("x", f"tensor<{extent}xf32>")])
    for i in range(n):
        t, extent = f"tensor<{extent}xf32>", extent - 1 - i
        s = f"tensor<{extent}xf32>"
        f.body.append(f"  %f{i} = ridge.flip %{last} dims [0] : {t} -> {t}")
        f.body.append(f"  %l{i} = ridge.slice %{last} dim 0 start {i + 1} step 1 : {t} -> {s}")
        f.body.append(f"  %r{i} = ridge.slice %f{i} dim 0 start {i + 1} step 1 : {t} -> {s}")
        f.types[f"l{i}"] = f.types[f"r{i}"] = s
        last = f.map(f"y{i}", "add", [f"l{i}", f"r{i}"], s)
    f.print(last)


def broadcast(n):
    """n powers of a row that is then added to a matrix."""
    row, t = "tensor<4096xf32>", "tensor<4096x4096xf32>"
    f, last = Function([("row", row), ("x", t)]), "row"
    f.types["lit"] = "tensor<f32>"
    for i in range(n):
        last = f.map(f"p{i}", "pow", [last, "lit"], row)
    f.print(f.map("y", "add", ["x", last], t))


def chain(n):
    t = "tensor<100000xf32>"
    f, last = Function([("x", t)]), "x"
    for i in range(n):
        last = f.map(f"t{i}", "tanh", [last], t)
    f.print(last)


def pads(n):
    """Each step shifts by one element."""
    t, wider = "tensor<64x64xf32>", "tensor<64x65xf32>"
    f, last = Function([("x", t)]), "x"
    for i in range(n):
        f.body.append(f'  %p{i} = ridge.pad %{last} low [0, 1] high [0, 0] value(0) {{ridge.name = "p{i}"}} : {t} -> {wider}')
        f.types[f"p{i}"] = wider
        m = f.map(f"m{i}", "exp", [f"p{i}"], wider)
        f.body.append(f'  %s{i} = ridge.slice %{m} dim 1 start 0 step 1 {{ridge.name = "s{i}"}} : {wider} -> {t}')
        last = f"s{i}"
        f.types[last] = t
    f.print(last)


def cat(n):
    """A cat of n tensors."""
    f = Function(inputs(n, "tensor<2x8xf32>"))
    f.op("y", "ridge.cat " + ", ".join("{}" for _ in range(n)) + " dim 0", [f"x{i}" for i in range(n)], f"tensor<{2 * n}x8xf32>")
    f.print("y")


globals()[sys.argv[1]](int(sys.argv[2]))
