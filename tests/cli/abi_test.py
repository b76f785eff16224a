#!/usr/bin/env python3
# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The compiler's C interface, from ctypes: codes and places of errors, arguments that make no sense, bytes that are no
graph, unaligned and shared pointers, threads, and nodes pinned to a narrower type.

usage: abi_test.py [unittest arguments], with libridgeline.so in $RIDGELINE_LIBRARY. Delayed scaling is tested on the
reference interpreter and on $RIDGELINE_TEST_TARGET (cpu or cuda; default: cpu)."""
import ctypes as C
import json
import math
import os
import pathlib
import random
import shutil
import struct
import tempfile
import threading
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
L = C.CDLL(os.environ.get("RIDGELINE_LIBRARY", str(SOURCE / "build/release/lib/libridgeline.so")))
L.rl_last_error.restype = C.c_char_p
L.rl_compile.argtypes = [C.c_char_p, C.c_size_t, C.c_char_p, C.c_char_p, C.POINTER(C.c_void_p)]
L.rl_run.argtypes = [C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p]
L.rl_bind.argtypes = [C.c_void_p, C.c_char_p, C.c_void_p, C.c_size_t]
L.rl_read.argtypes = [C.c_void_p, C.c_char_p, C.c_void_p, C.c_size_t]
L.rl_save.argtypes = [C.c_void_p, C.c_char_p]
L.rl_load.argtypes = [C.c_char_p, C.POINTER(C.c_void_p)]
L.rl_explain.argtypes = [C.c_void_p, C.c_char_p, C.POINTER(C.c_char_p)]
L.rl_count.argtypes = [C.c_void_p, C.c_int]
L.rl_kernel_count.argtypes = L.rl_unload.argtypes = [C.c_void_p]
L.rl_tensor.argtypes = [C.c_void_p, C.c_int, C.c_int] + [C.c_void_p] * 4
OK, USAGE, INVALID, UNSUPPORTED, DEVICE = range(5)
F32 = lambda *shape: {"dtype": "f32", "shape": list(shape)}  # noqa: E731


def graph(nodes, inputs, outputs=("y",), **more):
    return dict({"ridgeline": 1, "name": "g", "inputs": inputs, "nodes": nodes, "outputs": list(outputs)}, **more)


RELU = graph([{"op": "relu", "inputs": ["x"], "outputs": ["y"]}], {"x": F32(4)})


class Abi(unittest.TestCase):
    def compile(self, what, target="cpu", options=b'{"cache": "off"}'):
        """(code, module, message)"""
        text = what if isinstance(what, bytes) else json.dumps(what).encode()
        module = C.c_void_p()
        code = L.rl_compile(text, len(text), target.encode(), options, C.byref(module))
        if code == OK:
            self.addCleanup(L.rl_unload, module)
        else:
            self.assertIsNone(module.value)
        return code, module, L.rl_last_error().decode()

    def module(self, what, target="cpu"):
        code, module, message = self.compile(what, target)
        self.assertEqual(code, OK, message)
        return module

    def run_f32(self, module, inputs, count):
        out = (C.c_float * count)()
        code = L.rl_run(module, (C.c_void_p * len(inputs))(*inputs), (C.c_void_p * 1)(C.addressof(out)), None)
        self.assertEqual(code, OK, L.rl_last_error())
        return list(out)

    def test_places_of_errors(self):
        g = graph([{"op": "relu", "inputs": ["x"], "outputs": ["y"]}], {"x": F32("B")}, dims={"B": {"min": 5, "max": 4}})
        for change, code, place in (({}, INVALID, "/dims/B/max"), ({"dims": {"B": {"min": -1}}}, INVALID, "/dims/B/min"),
                                    ({"dims": {"B": {"min": 1}}}, UNSUPPORTED, "/dims")):
            got, _, message = self.compile(dict(g, **change))
            self.assertEqual((got, message.split(": ")[0]), (code, "graph:" + place))
        for target in ("cpu", "reference", "sm_90a"):
            g = dict(RELU, gradient={"of": {"y": "x"}, "wrt": ["x"]})
            code, _, message = self.compile(g, target)
            self.assertEqual((code, message.split(": ")[0]), (UNSUPPORTED, "graph:/gradient"))
            g = json.loads(json.dumps(RELU))
            g["nodes"][0]["precision"] = "f8e4m3"
            code, _, message = self.compile(g, target)
            self.assertEqual((code, message.split(": ")[0]), (UNSUPPORTED, "graph:/nodes/0/precision"))

    def test_arguments(self):
        text, out, none = json.dumps(RELU).encode(), C.c_void_p(), C.POINTER(C.c_void_p)()
        for code, call in ((USAGE, lambda: L.rl_compile(None, 0, b"cpu", None, C.byref(out))),
                           (USAGE, lambda: L.rl_compile(text, len(text), b"cpu", None, none)),
                           (USAGE, lambda: L.rl_compile(text, len(text), b"nowhere", None, C.byref(out))),
                           (USAGE, lambda: L.rl_compile(text, len(text), b"cpu", b"[", C.byref(out))),
                           (USAGE, lambda: L.rl_compile(text, len(text), b"cpu", b'{"what": 1}', C.byref(out))),
                           (INVALID, lambda: L.rl_compile(text, len(text) - 1, b"cpu", None, C.byref(out))),
                           (USAGE, lambda: L.rl_save(None, b"x")), (USAGE, lambda: L.rl_load(None, C.byref(out))),
                           (USAGE, lambda: L.rl_load(b"x", none)), (INVALID, lambda: L.rl_load(b"/nowhere", C.byref(out))),
                           (USAGE, lambda: L.rl_explain(None, b"text", None)), (USAGE, lambda: L.rl_run(None, None, None, None)),
                           (USAGE, lambda: L.rl_bind(None, b"w", None, 0)), (-1, lambda: L.rl_count(None, 0)),
                           (-1, lambda: L.rl_kernel_count(None)),
                           (USAGE, lambda: L.rl_tensor(None, 0, 0, None, None, None, None))):
            self.assertEqual(call(), code)
            self.assertTrue(L.rl_last_error())
        L.rl_unload(None)
        m = self.module(RELU)
        nothing = (C.c_void_p * 1)(None)
        for code, call in ((USAGE, lambda: L.rl_run(m, None, None, None)), (USAGE, lambda: L.rl_run(m, nothing, nothing, None)),
                           (USAGE, lambda: L.rl_bind(m, b"w", None, 0)), (-1, lambda: L.rl_count(m, 3)),
                           (USAGE, lambda: L.rl_read(m, b"w", None, 0)), (USAGE, lambda: L.rl_read(m, None, None, 0)),
                           (USAGE, lambda: L.rl_tensor(m, 0, 1, None, None, None, None)),
                           (OK, lambda: L.rl_tensor(m, 0, 0, None, None, None, None))):
            self.assertEqual(call(), code)

    def test_bytes_that_are_no_graph(self):
        self.assertEqual(self.compile(random.Random(1).randbytes(1 << 20))[0], INVALID)
        text, r = json.dumps(RELU).encode(), random.Random(2)
        for _ in range(500):
            b = bytearray(text)
            for _ in range(r.randint(1, 3)):
                b[r.randrange(len(b))] = r.randrange(256)
            self.assertIn(self.compile(bytes(b), "reference")[0], (OK, INVALID, UNSUPPORTED))

    def test_pointers(self):
        n = 1001
        g = graph([{"op": "add", "inputs": ["a", "b"], "outputs": ["y"]}], {"a": F32(n), "b": F32(n)})
        for target in ("cpu", "reference"):
            m = self.module(g, target)
            memory = (C.c_float * (2 * n + 64))(*range(2 * n + 64))
            for offset in range(5):  # aligned to an element, not to a vector
                a = C.addressof(memory) + 4 * offset
                self.assertEqual(self.run_f32(m, [a, a], n), [2.0 * (offset + i) for i in range(n)])
                self.assertEqual(self.run_f32(m, [a, a + 4 * n], n), [2.0 * (offset + i) + n for i in range(n)])

    def test_pinned_nodes_round(self):
        r = random.Random(3)
        x = [r.uniform(-4, 4) * 2.0 ** r.randint(-4, 6) for _ in range(37)]
        data = struct.pack("37f", *x)
        for pin, bits in (("f16", 13), ("bf16", 16), ("f32", 0)):
            node = {"op": "sub", "inputs": ["x", 0.3], "outputs": ["y"], "precision": pin}
            g = graph([node, {"op": "mul", "inputs": ["y", 1.1], "outputs": ["z"]}], {"x": F32(37)}, ["y"])
            got = [self.run_f32(self.module(g, t), [C.cast(data, C.c_void_p).value], 37) for t in ("reference", "cpu")]
            self.assertEqual(got[0], got[1], pin)
            for v in got[0]:
                self.assertEqual(struct.unpack("I", struct.pack("f", v))[0] & ((1 << bits) - 1), 0, (pin, v))
            # A 16-bit node rounds once, to the pin, and is then stored in its own type.
            own = "bf16" if pin == "f16" else "f16"
            g = graph([{"op": "cast", "inputs": ["x"], "outputs": ["c"], "attrs": {"dtype": own}},
                       {"op": "mul", "inputs": ["c", 3.3], "outputs": ["m"], "precision": pin},
                       {"op": "cast", "inputs": ["m"], "outputs": ["y"], "attrs": {"dtype": "f32"}}], {"x": F32(37)})
            got = [self.run_f32(self.module(dict(g, numerics="strict"), t), [C.cast(data, C.c_void_p).value], 37)
                   for t in ("reference", "cpu")]
            self.assertEqual(got[0], got[1], pin)

    def test_thousands_of_tensors(self):
        n = 4200  # more than one launch takes
        names = [f"x{i}" for i in range(n)]
        nodes = [{"op": "add", "inputs": [f"s{i - 1}" if i > 1 else "x0", names[i]], "outputs": [f"s{i}"]} for i in range(1, n)]
        m = self.module(graph(nodes, {name: F32(2) for name in names}, [f"s{n - 1}"]))
        self.assertGreater(L.rl_kernel_count(m), 1)
        data = (C.c_float * (2 * n))(*[i // 2 % 7 for i in range(2 * n)])
        total = float(sum(i % 7 for i in range(n)))
        self.assertEqual(self.run_f32(m, [C.addressof(data) + 8 * i for i in range(n)], 2), [total, total])

    def test_threads(self):
        wrong = []

        def work(i):
            try:
                for k in range(4):
                    n = 10 * i + k + 1
                    data = (C.c_float * n)(*range(n))
                    g = graph([{"op": "mul", "inputs": ["x", k], "outputs": ["a"]},
                               {"op": "add", "inputs": ["a", i], "outputs": ["y"]}], {"x": F32(n)})
                    m = self.module(g, ("cpu", "reference")[k % 2])
                    if self.run_f32(m, [C.addressof(data)], n) != [float(j * k + i) for j in range(n)]:
                        wrong.append((i, k))
                    if "/ridgeline" not in self.compile(b"{}")[2]:  # the message of this thread's own failure
                        wrong.append(i)
            except Exception as e:  # an assertion in a thread is not seen otherwise
                wrong.append(repr(e))
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])


def f32(v):
    return struct.unpack("f", struct.pack("f", v))[0]


class Precision(Abi):
    def test_weights_are_converted_when_they_are_bound(self):
        g = graph([{"op": "linear", "inputs": ["x", "w"], "outputs": ["y"]}], {"x": F32(1, 4)}, parameters={"w": F32(2, 4)})
        for kind in ("i8", "f8e4m3"):
            options = {"cache": "off", "precision": {"mode": "auto", "tolerance": 0.5, "pin": {"w": kind}}}
            code, m, message = self.compile(g, "cpu", json.dumps(options).encode())
            self.assertEqual(code, OK, message)
            folder = tempfile.mkdtemp()
            self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
            self.assertEqual(L.rl_save(m, os.path.join(folder, "p").encode()), OK)
            loaded = C.c_void_p()
            self.assertEqual(L.rl_load(os.path.join(folder, "p").encode(), C.byref(loaded)), OK)
            self.addCleanup(L.rl_unload, loaded)
            x = (C.c_float * 4)(1, 1, 1, 1)
            for module in (m, loaded):
                self.assertEqual(L.rl_kernel_count(module), 1)
                # The largest of a row has the largest code: these numbers are codes times a power of two, and stay what they are.
                largest = 127 if kind == "i8" else 448
                for scale in (1.0, 0.5):
                    rows = [[largest, 2, -16, 32], [-4, largest, 64, 1]]
                    w = (C.c_float * 8)(*[v * scale for row in rows for v in row])
                    self.assertEqual(L.rl_bind(module, b"w", w, 32), OK, L.rl_last_error())
                    for i in range(8):
                        w[i] = float("nan")  # copied
                    got = self.run_f32(module, [C.addressof(x)], 2)
                    for value, row in zip(got, rows):
                        self.assertAlmostEqual(value, sum(row) * scale, delta=abs(sum(row)) * 1e-2)


class Memory:
    """Tensors of f32 that the host and the target share."""

    def __init__(self, target):
        self.cuda = C.CDLL("libcuda.so.1") if target == "cuda" else None
        if self.cuda:
            context = C.c_void_p()
            self.check(self.cuda.cuInit(0))
            self.check(self.cuda.cuDevicePrimaryCtxRetain(C.byref(context), 0))
            self.check(self.cuda.cuCtxSetCurrent(context))

    def check(self, code):
        if code:
            raise RuntimeError(f"CUDA driver: error {code}")

    def floats(self, values):
        if not self.cuda:
            return (C.c_float * len(values))(*values)
        at = C.c_void_p()
        self.check(self.cuda.cuMemAllocManaged(C.byref(at), C.c_size_t(4 * len(values)), 1))
        tensor = (C.c_float * len(values)).from_address(at.value)
        tensor[:] = values
        return tensor

    def wait(self):
        if self.cuda:
            self.check(self.cuda.cuCtxSynchronize())

    def free(self, *tensors):
        for t in tensors if self.cuda else ():
            self.check(self.cuda.cuMemFree_v2(C.c_void_p(C.addressof(t))))


class DelayedScaling(Abi):
    """Scales from the amax of earlier runs, beside a model in Python."""
    TARGETS = ("reference", os.environ.get("RIDGELINE_TEST_TARGET", "cpu"))
    memory = Memory(TARGETS[1])
    N = 6
    LARGEST = {"i8": 127.0, "f8e4m3": 448.0, "f8e5m2": 57344.0}
    CLIPS = {"i8": 127.5, "f8e4m3": 464.0, "f8e5m2": 61440.0}

    def graph(self, *nodes, **more):
        return graph([{"op": "fake_quantize", "inputs": [x, *scale], "outputs": [f"y{i}"], "attrs": {"dtype": dtype, **attrs}}
                      for i, (x, dtype, scale, attrs) in enumerate(nodes)] + [{"op": "mul", "inputs": ["x", -3.0], "outputs": ["h"]}],
                     {"x": F32(self.N)}, [f"y{i}" for i in range(len(nodes))], **more)

    def delayed(self, g, target, every=None):
        options = {"cache": "off", "delayed_scaling": {} if every is None else {"every": every}}
        code, m, message = self.compile(g, target, json.dumps(options).encode())
        self.assertEqual(code, OK, message)
        return m

    def read(self, m, name, form):
        data = C.create_string_buffer(struct.calcsize(form))
        self.assertEqual(L.rl_read(m, name.encode(), data, struct.calcsize(form)), OK, L.rl_last_error())
        return list(struct.unpack(form, data.raw))

    def run_all(self, m, x):
        n = L.rl_count(m, 2)
        data, *out = [self.memory.floats(v) for v in [x] + [[math.nan] * self.N] * n]
        code = L.rl_run(m, (C.c_void_p * 1)(C.addressof(data)), (C.c_void_p * n)(*map(C.addressof, out)), None)
        self.assertEqual(code, OK, L.rl_last_error())
        self.memory.wait()
        results = [list(o) for o in out]
        self.memory.free(data, *out)
        return results

    def test_scales_follow_the_history(self):
        nodes = [("x", "i8", [], {}), ("h", "f8e4m3", [0.25], {}), ("x", "f8e5m2", [], {})]
        r = random.Random(5)
        runs = [[f32(r.gauss(0, 1) * size) for _ in range(self.N)] for size in [1000] + [1.5 ** (k % 7) for k in range(39)]]
        runs[4] = [0.0] * self.N
        runs[9][2], runs[21][0] = float("inf"), float("nan")
        for target in self.TARGETS:
            for every in (None, 1, 3, 16):
                m = self.delayed(self.graph(*nodes), target, every)
                history, scale, overflows = [[0.0] * 16 for _ in nodes], [1.0, 0.25, 1.0], [0, 0, 0]
                for k, x in enumerate(runs):
                    got = self.run_all(m, x)
                    if k < 6:  # with the scale of before the run
                        want = self.module(self.graph(*[(a, b, [s], d) for (a, b, _, d), s in zip(nodes, scale)]), target)
                        self.assertEqual(got, self.run_all(want, x), (target, every, k))
                    for i, (name, dtype, _, _) in enumerate(nodes):
                        magnitudes = [abs(v) if name == "x" else abs(f32(-3 * v)) for v in x]
                        overflows[i] += sum(v >= f32(scale[i] * self.CLIPS[dtype]) for v in magnitudes)
                        amax = max(magnitudes) if all(v == v for v in magnitudes) else 0.0
                        history[i][k % 16] = amax if amax < float("inf") else 0.0
                        if (k + 1) % (every or 1) == 0 and max(history[i]) > 0:
                            scale[i] = f32(max(history[i]) / self.LARGEST[dtype])
                    self.assertEqual(self.read(m, "delayed.scale", "3f"), scale, (target, every, k))
                    self.assertEqual(self.read(m, "delayed.overflows", "3q"), overflows, (target, every, k))
                    self.assertEqual(self.read(m, "delayed.history", "48f"), sum(history, []), (target, every, k))
                    self.assertEqual(self.read(m, "delayed.runs", "q"), [k + 1])
                self.assertGreater(sum(overflows), 0)

    def test_state_is_saved_and_bound_again(self):
        g, x = self.graph(("x", "i8", [], {})), [1.0, -2.0, 3.0, 40.0, -500.0, 6.5]
        for target in self.TARGETS:
            m = self.delayed(g, target)
            self.assertEqual((L.rl_count(m, 1), L.rl_count(m, 2)), (4, 1))
            self.run_all(m, x)
            state = {n: self.read(m, n, form) for n, form in (("delayed.scale", "f"), ("delayed.runs", "q"))}
            again = self.delayed(g, target)
            scale = struct.pack("f", *state["delayed.scale"])
            self.assertEqual(L.rl_bind(again, b"delayed.scale", scale, 4), OK)
            self.assertEqual(self.run_all(again, x), self.run_all(m, x))
            self.assertEqual(self.read(again, "delayed.overflows", "q"), [0])
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(L.rl_save(m, folder.encode() + b"/pkg"), OK)
            loaded = C.c_void_p()
            self.assertEqual(L.rl_load(folder.encode() + b"/pkg", C.byref(loaded)), OK, L.rl_last_error())
            self.addCleanup(L.rl_unload, loaded)
            data = C.create_string_buffer(8)
            self.assertEqual(L.rl_read(loaded, b"delayed.runs", data, 8), USAGE)  # state is no part of a package
            for name, raw in (("scale", scale), ("runs", bytes(8)), ("overflows", bytes(8)), ("history", bytes(64))):
                self.assertEqual(L.rl_bind(loaded, b"delayed." + name.encode(), raw, len(raw)), OK)
            for _ in range(2):
                self.assertEqual(self.run_all(loaded, x), self.run_all(m, x))
            self.assertEqual(self.read(loaded, "delayed.runs", "q"), [2])

    def test_which_nodes(self):
        tokens = ("x", "i8", [], {"granularity": "token"})
        # Names that the graph has are left alone; what parameters make and what has a scale of its own keeps it.
        g = self.graph(tokens, ("x", "i8", [], {}), ("w", "i8", [], {}), ("x", "i8", ["s"], {}),
                       ("x", "i8", [], {"scheme": "asymmetric"}), parameters={"w": F32(self.N), "s": F32(), "delayed.scale": F32()})
        for target in self.TARGETS:
            m = self.delayed(g, target)
            for name, count in (("w", self.N), ("s", 1), ("delayed.scale", 1)):
                self.assertEqual(L.rl_bind(m, name.encode(), (C.c_float * count)(*[1.0] * count), 4 * count), OK)
            self.run_all(m, [2.0] * self.N)
            self.assertEqual(self.read(m, "delayed2.scale", "f"), [f32(2 / 127)])
            self.assertEqual(self.read(m, "delayed.scale", "f"), [1.0])

    def test_the_tensor_is_read_once(self):
        g = graph([{"op": "gelu", "inputs": ["x"], "outputs": ["h"]},
                   {"op": "quantize", "inputs": ["h"], "outputs": ["q", "s"], "attrs": {"dtype": "f8e4m3"}}],
                  {"x": {"dtype": "bf16", "shape": [512, 1024]}}, ["q"])
        for target in ("cpu", "sm_90a"):
            read = []
            for options in (b'{"cache": "off"}', b'{"cache": "off", "delayed_scaling": {}}'):
                code, m, message = self.compile(g, target, options)
                self.assertEqual(code, OK, message)
                text = C.c_char_p()
                self.assertEqual(L.rl_explain(m, b"json", C.byref(text)), OK)
                read.append(sum(k["bytes_read"] for k in json.loads(text.value)["kernels"]) / (2 * 512 * 1024))
            self.assertGreaterEqual(read[0], 2, target)
            self.assertLess(read[1], 1.1, target)

    def test_refused(self):
        g = self.graph(("x", "i8", [], {"granularity": "token"}))
        code, _, message = self.compile(g, "cpu", b'{"delayed_scaling": {}}')
        self.assertEqual((code, message.split(": ")[0]), (UNSUPPORTED, "graph:/nodes"))
        for options in (b'{"delayed_scaling": 4}', b'{"delayed_scaling": {"every": 0}}', b'{"delayed_scaling": {"every": 1.5}}',
                        b'{"delayed_scaling": {"often": 1}}'):
            self.assertEqual(self.compile(self.graph(("x", "i8", [], {})), "cpu", options)[0], USAGE)
        self.assertEqual(self.compile(self.graph(("x", "i8", [], {})), "cpu", b'{"tune": true}')[0], UNSUPPORTED)
        self.assertEqual(self.compile(self.graph(("x", "i8", [], {})), "cpu", b'{"tune": 1}')[0], USAGE)
        # What a precision mode makes of parameters is made once; these change from run to run.
        code, _, message = self.compile(self.graph(("x", "i8", [], {})), "cpu",
                                        b'{"delayed_scaling": {}, "precision": "int8"}')
        self.assertEqual((code, message.split(": ")[0]), (UNSUPPORTED, "graph:/precision/mode"))
        code, _, message = self.compile(graph([{"op": "relu", "inputs": ["z"], "outputs": ["y"]}], {"x": F32(4)}), "cpu",
                                        b'{"delayed_scaling": {}}')
        self.assertEqual((code, message.split(": ")[0]), (INVALID, "graph:/nodes/0/inputs/0"))


if __name__ == "__main__":
    unittest.main()
