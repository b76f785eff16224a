#!/usr/bin/env python3
# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ridgeline from Python with nothing but ctypes.

  run.py libridgeline.so GRAPH.json [TARGET]     TARGET: cpu (default), reference

Compiles the graph, runs it on pseudo-random bf16 or f32 inputs and prints a few elements of each output beside what the
reference interpreter gives. Exit status 4 where they differ by more than 2 %.
"""
import ctypes as C
import math
import random
import struct
import sys

WIDTH = {"f32": 4, "bf16": 2}


class Ridgeline:
    def __init__(self, path):
        self.lib = C.CDLL(path)
        self.lib.rl_last_error.restype = C.c_char_p
        self.lib.rl_version.restype = C.c_char_p

    def check(self, code):
        if code:
            raise RuntimeError(self.lib.rl_last_error().decode())

    def compile(self, graph, target):
        module = C.c_void_p()
        self.check(self.lib.rl_compile(graph, C.c_size_t(len(graph)), target.encode(), None, C.byref(module)))
        return module

    def tensors(self, module, kind):
        found = []
        for i in range(self.lib.rl_count(module, kind)):
            name, dtype, rank, extents = C.c_char_p(), C.c_char_p(), C.c_int(), C.POINTER(C.c_int64)()
            self.check(self.lib.rl_tensor(module, kind, i, C.byref(name), C.byref(dtype), C.byref(rank), C.byref(extents)))
            count = 1
            for k in range(rank.value):
                count *= extents[k]
            found.append((name.value.decode(), dtype.value.decode(), count))
        return found

    def run(self, module, inputs):
        outputs = [C.create_string_buffer(n * WIDTH[d] or 1) for _, d, n in self.tensors(module, 2)]
        ins = (C.c_void_p * max(1, len(inputs)))(*[C.addressof(b) for b in inputs])
        outs = (C.c_void_p * len(outputs))(*[C.addressof(b) for b in outputs])
        self.check(self.lib.rl_run(module, ins, outs, None))
        return outputs


def encode(values, dtype):
    data = struct.pack(f"<{len(values)}f", *values)
    return data if dtype == "f32" else b"".join(data[i + 2 : i + 4] for i in range(0, len(data), 4))


def decode(buffer, dtype, count):
    data = C.string_at(buffer, count * WIDTH[dtype])
    if dtype == "bf16":
        data = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
    return struct.unpack(f"<{count}f", data)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    rl = Ridgeline(sys.argv[1])
    graph = open(sys.argv[2], "rb").read()
    target = sys.argv[3] if len(sys.argv) > 3 else "cpu"
    fused, reference = rl.compile(graph, target), rl.compile(graph, "reference")
    print(f"ridgeline {rl.lib.rl_version().decode()}: {rl.lib.rl_kernel_count(fused)} kernel(s) on {target}")
    rng = random.Random(0)
    inputs = []
    for _, dtype, count in rl.tensors(fused, 0):
        pattern = [rng.gauss(0, 1) for _ in range(min(count, 4096))]
        data = encode(pattern, dtype)
        size = count * WIDTH[dtype]
        inputs.append(C.create_string_buffer((data * (size // max(1, len(data)) + 1))[:size], max(1, size)))
    got, want = rl.run(fused, inputs), rl.run(reference, inputs)
    worst = 0.0
    for (name, dtype, count), g, w in zip(rl.tensors(fused, 2), got, want):
        shown = min(count, 2000)
        a, b = decode(g, dtype, shown), decode(w, dtype, shown)
        for x, y in zip(a, b):
            if math.isnan(x) != math.isnan(y):
                worst = math.inf
            elif not math.isnan(x):
                worst = max(worst, 0.0 if x == y else abs(x - y) / (1 + abs(y)))
        print(f"{name}: " + ", ".join(f"{x:.4f} ({y:.4f})" for x, y in zip(a[:4], b[:4])))
    print(f"largest difference from the reference: {worst:.2e}")
    rl.lib.rl_unload(fused)
    rl.lib.rl_unload(reference)
    return 0 if worst <= 0.02 else 4


if __name__ == "__main__":
    sys.exit(main())
