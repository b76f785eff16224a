#!/usr/bin/env python3
# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ridgeline calibrate end to end, and --params, which its scales are for.

usage: calibrate_test.py [unittest arguments], with the program in $RIDGELINE."""
import json
import math
import os
import pathlib
import random
import re
import struct
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tensors as T  # noqa: E402
from cli_test import Cli, graph, node  # noqa: E402


def gauss(n, seed, deviation=1.0):
    r = random.Random(seed)
    return [r.gauss(0, deviation) for _ in range(n)]


def stored(values):
    """As f32 holds them."""
    return list(struct.unpack(f"<{len(values)}f", T.f32(*values)))


# An activation and a weight in a product of f8, beside the same activation quantised in other ways.
LAYER = graph(
    [node("quantize", ["x"], ["xq", "xs"], dtype="f8e4m3"),
     node("quantize", ["w"], ["wq", "ws"], dtype="f8e4m3", granularity="token"),
     node("scaled_matmul", ["xq", "wq", "xs", "ws"], "y", granularity_a="tensor", granularity_b="token", transpose_b=True),
     node("mul", ["x", 3.0], "h"),
     node("fake_quantize", ["h"], "t", dtype="i8"),
     node("fake_quantize", ["h"], "c", dtype="i8", granularity="axis", axis=-1),
     node("fake_quantize", ["h"], "r", dtype="i8", granularity="token"),
     node("quantize", ["w"], ["m", "ms"], dtype="f8e5m2", granularity="block", block=[1, 4], scale_dtype="f8e8m0")],
    inputs={"x": {"dtype": "f32", "shape": ["B", 8]}}, outputs=["y", "t", "c", "r", "m"],
    parameters={"w": {"dtype": "f32", "shape": [6, 8]}}, dims={"B": {"min": 1, "max": 64}})


class Calibrate(Cli):
    def setUp(self):
        super().setUp()
        self.write("g.json", LAYER)
        self.w = gauss(48, 99)
        os.mkdir(self.path("data"))
        self.samples = []
        for k in range(6):
            rows = 4 if k % 2 else 7
            self.samples.append((rows, stored(gauss(8 * rows, k))))
            self.save(f"data/{k}.safetensors", *self.samples[-1])
        T.save(self.path("w.safetensors"), {"w": ("F32", [6, 8], T.f32(*self.w))})
        self.write("data/readme.txt", "no sample")

    def save(self, name, rows, x, **extra):
        T.save(self.path(name), {"x": ("F32", [rows, 8], T.f32(*x)), **extra})

    def calibrate(self, *more, target="cpu"):
        return self.ok("calibrate", "g.json", "--data", "data", "--params", "w.safetensors", "--target", target, *more)

    def report(self, *more, **options):
        r = json.loads(self.calibrate("--json", *more, **options).stdout)
        return r, {t["output"]: t for t in r["tensors"]}

    def test_report_and_scales(self):
        everything = [v for _, x in self.samples for v in x]
        amax = max(map(abs, everything))
        for target in ("cpu", "reference"):
            r, by = self.report("--percentile", "100", target=target)
            self.assertEqual((r["graph"], r["target"], r["samples"]), ("g", target, 6))
            self.assertEqual(list(by), ["xq", "wq", "t", "c", "r", "m"])
            x = by["xq"]
            self.assertEqual((x["tensor"], x["pointer"], x["dtype"], x["granularity"]), ("x", "/nodes/0", "f8e4m3", "tensor"))
            self.assertEqual((x["values"], x["nan"], x["infinite"]), (len(everything), 0, 0))
            self.assertEqual(x["amax"], amax)
            self.assertEqual(x["scale"], stored([amax / 448]))
            self.assertEqual((x["clipped"], x["outlier_channels"]), (0, []))
            self.assertTrue(20 < x["sqnr_db"] < 45, x["sqnr_db"])
            exact = sorted(map(abs, everything))[math.ceil(0.5 * len(everything)) - 1]
            self.assertTrue(exact <= x["percentiles"]["50"] <= exact * (1 + 2**-7))
            self.assertEqual(by["wq"]["values"], 48)  # the weight counts once
            self.assertEqual(by["wq"]["scale"], stored([max(map(abs, stored(self.w[8 * n:8 * n + 8]))) / 448 for n in range(6)]))
            self.assertEqual((by["c"]["granularity"], by["c"]["axis"], len(by["c"]["scale"])), ("axis", 1, 8))
            self.assertIsNone(by["r"]["scale"])
            self.assertIn("row", by["r"]["dynamic"])
            self.assertEqual((by["m"]["granularity"], by["m"]["block"], len(by["m"]["scale"])), ("block", [1, 4], 12))
        self.assertFalse([f for f in self.listing() if f.endswith(".json") and f != "g.json"])

    def test_text(self):
        r = self.calibrate("-o", "c.json")
        lines = r.stdout.splitlines()
        self.assertRegex(lines[0], r"^graph g on cpu \(.*\): 6 quantised tensors, 6 samples$")
        self.assertRegex(lines[1], r"^tensor +node +type +granularity +amax +99.9 % +99.99 % +scale +of +clipped +SQNR dB$")
        self.assertRegex(lines[2], r"^x +xq +f8e4m3 +tensor +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +amax +0 % +[\d.]+$")
        self.assertIn("r: the scale stays dynamic: each row's scale is its own", lines)
        self.assertEqual(lines[-1], "written: c.json and, for --params, c.scales.safetensors")
        self.assertEqual(r.stderr, "")
        self.assertEqual(self.calibrate("-q", "-o", "c.json").stdout, "")
        self.assertEqual(self.calibrate().stdout, self.calibrate().stdout)

    def test_round_trip(self):
        r, by = self.report("-o", "c.json")
        g = json.loads(self.read("c.json"))
        scales = T.load(self.path("c.scales.safetensors"))
        self.assertEqual({n: (d, s) for n, (d, s, _) in scales.items()},
                         {"wq.scale": ("F32", [6]), "c.scale": ("F32", [8]), "m.scale": ("F8_E8M0", [6, 2])})
        self.assertEqual((r["output"], r["scales"]), ("c.json", "c.scales.safetensors"))
        inputs = {n["outputs"][0]: n["inputs"] for n in g["nodes"]}
        self.assertEqual(inputs["xq"], ["x", by["xq"]["scale"][0]])
        self.assertEqual(inputs["t"], ["h", by["t"]["scale"][0]])
        self.assertEqual(inputs["c"], ["h", "c.scale"])
        self.assertEqual(inputs["r"], ["h"])
        self.assertEqual(T.values(*scales["c.scale"][::2]), by["c"]["scale"])
        self.assertEqual(by["m"]["parameter"], "m.scale")
        # Nothing else of the graph has changed, and the scales are found no second time.
        for n, was in zip(g["nodes"], LAYER["nodes"]):
            self.assertEqual({**n, "inputs": n["inputs"][:len(was["inputs"])]}, was)
        self.assertEqual(g["dims"], LAYER["dims"])
        again, _ = json.loads(self.ok("calibrate", "c.json", "--data", "data", "--params", "w.safetensors", "--params",
                                      "c.scales.safetensors", "--target", "cpu", "--json").stdout), None
        self.assertEqual([t["output"] for t in again["tensors"]], ["r"])
        params = ["--params", "w.safetensors", "--params", "c.scales.safetensors"]
        for k in range(2):
            self.ok("verify", "c.json", "--inputs", f"data/{k}.safetensors", *params, "--target", "cpu")
        self.ok("verify", "c.json", "--inputs", "random", *params, "--target", "cpu", "--dim", "B=5")
        self.ok("bench", "c.json", "--inputs", "data/0.safetensors", *params, "--target", "cpu", "--repeat", "1")
        self.ok("compile", "c.json", "-o", "pkg", "--target", "cpu", "--dim", "B=7")
        self.ok("run", "pkg", "--inputs", "data/0.safetensors", *params, "--outputs", "a.safetensors")
        self.ok("run", "c.json", "--inputs", "data/0.safetensors", *params, "--outputs", "b.safetensors", "--target", "cpu")
        self.assertEqual(self.read("a.safetensors"), self.read("b.safetensors"))

    def test_one_sample_gives_what_dynamic_scales_give(self):
        for target in ("cpu", "reference"):
            self.ok("calibrate", "g.json", "--data", "data/0.safetensors", "--params", "w.safetensors", "--percentile", "100", "-o", "c.json",
                    "--target", target, "-q")
            self.ok("run", "g.json", "--inputs", "data/0.safetensors", "--params", "w.safetensors", "--outputs", "dynamic.safetensors",
                    "--target", target)
            self.ok("run", "c.json", "--inputs", "data/0.safetensors", "--params", "w.safetensors", "--params", "c.scales.safetensors",
                    "--outputs", "static.safetensors", "--target", target)
            self.assertEqual(self.read("dynamic.safetensors"), self.read("static.safetensors"))

    def test_stacked_and_parameters_beside(self):
        rows, n = 4, 5
        x = gauss(8 * rows * n, 7)
        for k in range(n):
            self.save(f"data/{k}.safetensors", rows, x[8 * rows * k:8 * rows * (k + 1)])
        os.unlink(self.path("data/5.safetensors"))
        _, apart = self.report()
        T.save(self.path("all.safetensors"), {"x": ("F32", [n, rows, 8], T.f32(*x)), "w": ("F32", [6, 8], T.f32(*self.w))})
        one = json.loads(self.ok("calibrate", "g.json", "--data", "all.safetensors", "--target", "cpu", "--json").stdout)
        self.assertEqual(one["samples"], n)
        self.assertEqual({t["output"]: t for t in one["tensors"]}, apart)
        few = json.loads(self.ok("calibrate", "g.json", "--data", "all.safetensors", "--target", "cpu", "--json", "--samples", "2").stdout)
        self.assertEqual((few["samples"], few["tensors"][0]["values"]), (2, 2 * rows * 8))
        self.assertEqual(few["tensors"][0]["amax"], max(map(abs, stored(x[:2 * rows * 8]))))

    def test_outlier_channel(self):
        for k, (rows, x) in enumerate(self.samples):
            self.save(f"data/{k}.safetensors", rows, [v * (200 if i % 8 == 3 else 1) for i, v in enumerate(x)])
        text = self.calibrate().stdout
        self.assertRegex(text, r"(?m)^t: 1 outlier channel along dimension 1 \(.*\): 3 \(")
        self.assertRegex(text, r"(?m)^t: proposed: granularity (axis 1|token), SQNR [\d.]+ dB \(\+[\d.]+\)$")
        # Along K a product takes no scales.
        self.assertRegex(text, r"(?m)^xq: proposed: granularity token, ")
        _, by = self.report()
        self.assertEqual([c["index"] for c in by["t"]["outlier_channels"]], [3])
        self.assertGreater(by["t"]["proposal"]["sqnr_db"], by["t"]["sqnr_db"] + 1)

    def test_refine(self):
        for k, (rows, x) in enumerate(self.samples):
            self.save(f"data/{k}.safetensors", rows, [v * (200 if i % 8 == 3 else 1) for i, v in enumerate(x)])
        # The codes of the second are an output, which has a meaning to somebody.
        self.write("g.json", dict(LAYER, nodes=LAYER["nodes"] + [node("quantize", ["x"], ["o", "os"], dtype="i8")],
                                  outputs=LAYER["outputs"] + ["o"]))
        _, plain = self.report()
        _, by = self.report("--refine", "-o", "c.json")
        self.assertEqual((by["xq"]["granularity"], by["xq"]["before"]["granularity"]), ("token", "tensor"))
        self.assertEqual(by["xq"]["sqnr_db"], plain["xq"]["proposal"]["sqnr_db"])
        self.assertEqual((by["o"]["granularity"], by["o"]["proposal"]), ("tensor", plain["o"]["proposal"]))
        self.assertNotIn("before", by["o"])
        g = {n["outputs"][0]: n for n in json.loads(self.read("c.json"))["nodes"]}
        self.assertEqual(g["xq"]["attrs"]["granularity"], "token")
        self.assertEqual(g["y"]["attrs"]["granularity_a"], "token")
        self.assertEqual(g["t"]["attrs"]["granularity"], by["t"]["granularity"])
        self.ok("verify", "c.json", "--inputs", "data/0.safetensors", "--params", "w.safetensors", "--params", "c.scales.safetensors",
                "--target", "cpu")
        text = self.calibrate("--refine").stdout
        self.assertRegex(text, r"(?m)^xq: granularity tensor became token, SQNR [\d.]+ dB \(\+[\d.]+\)$")
        self.assertRegex(text, r"(?m)^o: proposed: granularity .*; to be written by hand: o is an output of the graph$")

    def test_not_finite_and_empty(self):
        self.save("data/0.safetensors", 1, [math.nan, math.inf, -math.inf, 1, 2, 3, 4, -5])
        for k in range(1, 6):
            os.unlink(self.path(f"data/{k}.safetensors"))
        text = self.calibrate("-o", "c.json").stdout
        self.assertIn("xq: 1 NaN and 2 infinite values were left out\n", text)
        _, by = self.report()
        self.assertEqual((by["xq"]["values"], by["xq"]["amax"]), (5, 5))
        self.write("e.json", graph([node("fake_quantize", ["x"], dtype="i8")], inputs={"x": {"dtype": "bf16", "shape": [0, 3]}}))
        T.save(self.path("e.safetensors"), {"x": ("BF16", [0, 3], b"")})
        r = json.loads(self.ok("calibrate", "e.json", "--data", "e.safetensors", "--target", "reference", "--json").stdout)
        self.assertEqual((r["tensors"][0]["scale"], r["tensors"][0]["sqnr_db"], r["tensors"][0]["values"]), ([1], None, 0))

    def test_16_bit_types(self):
        for name, dtype, width in (("f16", "F16", 2), ("bf16", "BF16", 2)):
            self.write("h.json", graph([node("fake_quantize", ["x"], dtype="i8")], inputs={"x": {"dtype": name, "shape": [2]}}))
            raw = struct.pack("<2e", 0.5, -3) if name == "f16" else T.f32(0.5)[2:] + T.f32(-3)[2:]
            T.save(self.path("h.safetensors"), {"x": (dtype, [2], raw)})
            for target in ("cpu", "reference"):
                r = json.loads(self.ok("calibrate", "h.json", "--data", "h.safetensors", "--target", target, "--json").stdout)
                self.assertEqual((r["tensors"][0]["amax"], r["tensors"][0]["percentiles"]["99"]), (3, 3))

    def refused(self, status, *args, **more):
        self.fails(status, "calibrate", *args, "-o", "c.json", "--target", "cpu", **more)

    def test_usage(self):
        self.fails(1, "calibrate", "g.json", mentions=["--data"])
        for more in (["--samples", "0"], ["--percentile", "0"], ["--percentile", "101"], ["--percentile", "x"]):
            self.refused(1, "g.json", "--data", "data", *more)
        self.refused(1, "data", "--data", "data")
        for read in ("data/0.safetensors", "w.safetensors"):
            self.fails(1, "calibrate", "g.json", "--data", "data/0.safetensors", "--params", "w.safetensors", "-o", read, mentions=["read here"])
        os.link(self.path("w.safetensors"), self.path("c.scales.safetensors"))
        self.refused(1, "g.json", "--data", "data", "--params", "w.safetensors", mentions=["w.safetensors"])

    def test_nothing_to_calibrate(self):
        self.write("n.json", graph([node("mul", ["x", 2.0])]))
        self.refused(2, "n.json", "--data", "data", place="n.json:/nodes", mentions=["nothing to calibrate"])
        self.write("s.json", graph([node("fake_quantize", ["x", 0.5], dtype="i8")]))
        self.refused(2, "s.json", "--data", "data", place="s.json:/nodes")
        self.write("b.json", graph([node("fake_quantize", ["z"], dtype="i8")]))
        self.refused(2, "b.json", "--data", "data", place="b.json:/nodes/0/inputs/0")

    def test_bad_data(self):
        args = ["g.json", "--data", "data", "--params", "w.safetensors"]
        self.refused(2, "g.json", "--data", "data", place="data/0.safetensors:/w", mentions=["missing"])
        self.refused(2, "g.json", "--data", "nowhere", place="nowhere:")
        self.refused(2, "g.json", "--data", "data", "--params", "no.safetensors", place="no.safetensors:")
        os.mkdir(self.path("empty"))
        self.refused(2, "g.json", "--data", "empty", place="empty:")
        T.save(self.path("data/3.safetensors"), {"z": ("F32", [1], T.f32(1))})
        self.refused(2, *args, place="data/3.safetensors:/x", mentions=["missing"])
        T.save(self.path("data/3.safetensors"), {"x": ("F32", [2, 7], T.f32(*range(14)))})
        self.refused(2, *args, place="data/3.safetensors:/x", mentions=["[2, 7]"])
        T.save(self.path("data/3.safetensors"), {"x": ("F16", [2, 8], b"\0" * 32)})
        self.refused(2, *args, place="data/3.safetensors:/x")
        self.save("data/3.safetensors", 65, [0] * 65 * 8)
        self.refused(2, *args, place="data/3.safetensors:/x")
        self.write("data/3.safetensors", b"rubbish")
        self.refused(2, *args, place="data/3.safetensors:")
        T.save(self.path("none.safetensors"), {"x": ("F32", [0, 2, 8], b"")})
        self.refused(2, "g.json", "--data", "none.safetensors", "--params", "w.safetensors", place="none.safetensors:")
        T.save(self.path("v.safetensors"), {"w": ("F32", [6, 7], T.f32(*range(42)))})
        self.refused(2, "g.json", "--data", "data", "--params", "v.safetensors", place="v.safetensors:/w")
        # The first samples are enough.
        self.calibrate("--samples", "3")

    def test_stacks_must_agree(self):
        self.write("two.json", graph([node("add", ["x", "z"], "h"), node("fake_quantize", ["h"], dtype="i8")],
                                     inputs={"x": {"dtype": "f32", "shape": [2]}, "z": {"dtype": "f32", "shape": []}}))
        T.save(self.path("s.safetensors"), {"x": ("F32", [3, 2], T.f32(*range(6))), "z": ("F32", [3], T.f32(0, 10, 20))})
        r = json.loads(self.ok("calibrate", "two.json", "--data", "s.safetensors", "--target", "cpu", "--json").stdout)
        self.assertEqual((r["samples"], r["tensors"][0]["amax"]), (3, 25))
        for shape in ([2], []):
            T.save(self.path("s.safetensors"), {"x": ("F32", [3, 2], T.f32(*range(6))), "z": ("F32", shape, T.f32(*[0] * math.prod(shape)))})
            self.refused(2, "two.json", "--data", "s.safetensors", place="s.safetensors:/z")

    @unittest.skipIf(os.geteuid() == 0, "root reads and writes everything")
    def test_permissions(self):
        os.chmod(self.path("data"), 0)
        self.refused(2, "g.json", "--data", "data", place="data:")
        os.chmod(self.path("data"), 0o755)

    def test_output(self):
        args = ["g.json", "--data", "data", "--params", "w.safetensors", "--target", "cpu"]
        self.fails(4, "calibrate", *args, "-o", "no/c.json", place="no/c.json")
        self.fails(4, "calibrate", *args, "-o", "data", place="data")
        self.fails(4, "calibrate", *args, "-o", "/dev/null", place="/dev/null")
        os.mkdir(self.path("c.scales.safetensors"))
        self.fails(4, "calibrate", *args, "-o", "c.json", place="c.scales.safetensors")
        # In place, and through a link.
        os.rmdir(self.path("c.scales.safetensors"))
        os.symlink("g.json", self.path("link.json"))
        self.ok("calibrate", *args, "-q", "-o", "link.json")
        self.assertTrue(os.path.islink(self.path("link.json")))
        self.assertIn(b"c.scale", self.read("g.json"))
        self.assertEqual(sorted(f for f in self.listing() if "tmp" in f), [])

    def test_index_out_of_range_names_the_sample(self):
        self.write("i.json", graph([node("index_select", ["x", "i"], "h", dim=0), node("fake_quantize", ["h"], dtype="i8")],
                                   inputs={"x": {"dtype": "f32", "shape": [2, 3]}, "i": {"dtype": "i64", "shape": [1]}}))
        T.save(self.path("s.safetensors"), {"x": ("F32", [2, 2, 3], T.f32(*range(12))), "i": ("I64", [2, 1], T.i64(1, 2))})
        self.refused(2, "i.json", "--data", "s.safetensors", place="s.safetensors:/i")


class Precision(Cli):
    """Errors of a precision policy, measured on samples."""
    K, N = 4096, 2048

    def bf16(self, rows, columns, scale, seed, outlier=0.0):
        """Normal numbers, the same again after a prime number of them; each row may begin with an outlier."""
        block = T.bf16(*gauss(4099, seed, scale))
        raw = bytearray((block * (rows * columns // 4099 + 1))[:2 * rows * columns])
        for r in range(rows if outlier else 0):
            raw[2 * r * columns:2 * r * columns + 2] = T.bf16(outlier * scale)
        return bytes(raw)

    def prepare(self, tolerance, outlier=0.0, **policy):
        K, N = self.K, self.N
        self.write("g.json", graph(
            [node("linear", ["x", "w"], "h"), node("silu", ["h"], "a"), node("linear", ["a", "v"], "y")],
            inputs={"x": {"dtype": "bf16", "shape": ["B", K]}}, outputs=["y"], dims={"B": {"min": 1, "max": 4}},
            parameters={"w": {"dtype": "bf16", "shape": [N, K]}, "v": {"dtype": "bf16", "shape": [K, N]}},
            precision={"mode": "auto", "tolerance": tolerance, **policy}))
        T.save(self.path("w.safetensors"), {"w": ("BF16", [N, K], self.bf16(N, K, K**-0.5, 1, outlier)),
                                            "v": ("BF16", [K, N], self.bf16(K, N, N**-0.5, 2, outlier))})
        os.makedirs(self.path("data"), exist_ok=True)
        for k, rows in enumerate((1, 2)):
            T.save(self.path(f"data/{k}.safetensors"), {"x": ("BF16", [rows, K], self.bf16(rows, K, 1, 3 + k))})

    def calibrate(self, *more):
        return self.ok("calibrate", "g.json", "--data", "data", "--params", "w.safetensors", "--target", "reference", *more)

    def types(self, path, rows=1):
        r = json.loads(self.ok("explain", path, "--target", "h200", "--dim", f"B={rows}", "--format", "json").stdout)["precision"]
        return r, [a["types"] for d in r["decisions"] if d["kind"] == "product" for a in d["alternatives"] if a["chosen"]]

    def test_estimates_become_what_was_measured(self):
        self.prepare(0.02)
        r = json.loads(self.calibrate("--json", "-o", "c.json").stdout)
        self.assertEqual((r["tensors"], r["samples"]), ([], 2))
        p = r["precision"]
        self.assertEqual((p["mode"], p["tolerance"], p["within"], p["outputs"][0]["name"]), ("auto", 0.02, True, "y"))
        self.assertLess(p["outputs"][0]["measured"], 0.02)
        self.assertLess(p["predicted_us"], p["predicted_kept_us"])
        g, before = json.loads(self.read("c.json")), json.loads(self.read("g.json"))
        self.assertEqual(g["precision"].pop("observed"), {"y": p["outputs"][0]["observed"]})
        self.assertEqual(g["precision"], before["precision"])
        self.assertEqual(g["nodes"], before["nodes"])
        record, types = self.types("c.json", rows=2)  # as the last sample has, by which types are assigned
        self.assertTrue(record["observed"])
        self.assertIn("bf16 x i8 widened", types)
        self.assertTrue(0.7 < record["error"] / p["outputs"][0]["measured"] < 1.4, record["error"])
        self.assertIn("by what samples showed", self.ok("explain", "c.json", "--target", "h200", "--dim", "B=1").stdout)
        verified = self.ok("verify", "c.json", "--params", "w.safetensors", "--inputs", "data/0.safetensors", "--target", "cpu",
                           "--precision").stdout
        self.assertIn("within the tolerance of 0.02", verified)

    def test_outliers_are_seen(self):
        # One weight of 60 in each row: what is left of 8 bits for the others is little. The estimate knows nothing of it.
        self.prepare(0.02, outlier=60.0)
        _, types = self.types("g.json")
        self.assertIn("bf16 x i8 widened", types)
        text = self.calibrate("-o", "c.json").stdout.splitlines()
        self.assertRegex(text[0], r"^graph g on reference: 2 samples$")
        self.assertRegex(text[1], r"^precision auto, tolerance 0.02, \d rounds?: [\d.]+ us predicted for what is decided about, ")
        self.assertRegex(text[2], r"^output +error measured +estimated without samples +observed$")
        self.assertRegex(text[3], r"^y +0.0[\d]+ +0.0[\d]+ +[\d.]+$")
        self.assertEqual(text[-1], "written: c.json")
        self.assertGreater(json.loads(self.read("c.json"))["precision"]["observed"]["y"], 1)
        self.assertNotIn("bf16 x i8 widened", self.types("c.json")[1])
        self.assertLess(float(text[3].split()[1]), 0.02)

    def small(self, x, nodes=(), outputs=("y",), tolerance=0.02, w=1.0, dtype="bf16", **more):
        """A product whose weight is pinned to i8, of one sample."""
        raw = T.bf16 if dtype == "bf16" else T.f32
        self.write("s.json", graph([node("linear", ["x", "w"], "y"), *nodes], inputs={"x": {"dtype": dtype, "shape": [4, 64]}},
                                   outputs=outputs, parameters={"w": {"dtype": dtype, "shape": [32, 64]}},
                                   precision={"mode": "auto", "tolerance": tolerance, "pin": {"w": "i8"}}, **more))
        T.save(self.path("p.safetensors"), {"w": (dtype.upper(), [32, 64], raw(*gauss(2048, 5, w)))})
        os.makedirs(self.path("one"), exist_ok=True)
        T.save(self.path("one/0.safetensors"), {"x": (dtype.upper(), [4, 64], raw(*x))})

    def observe(self, graph="s.json", *more):
        r = self.ok("calibrate", graph, "--data", "one", "--params", "p.safetensors", "--target", "cpu", "--json", *more)
        return json.loads(r.stdout)["precision"]

    def test_samples_that_show_nothing(self):
        for x in ([0.0] * 256, [math.nan] * 256, [math.inf] * 256):
            self.small(x)
            p = self.observe("s.json", "-o", "c.json")
            self.assertEqual([p["outputs"][0][k] for k in ("name", "measured", "observed")], ["y", None, None])
            self.assertNotIn("observed", json.loads(self.read("c.json"))["precision"])
            self.assertIn("y: nothing was observed", self.ok("calibrate", "s.json", "--data", "one", "--params", "p.safetensors",
                                                             "--target", "cpu").stdout)
        self.small([math.nan] + gauss(255, 3))
        p = self.observe()
        self.assertEqual(p["outputs"][0]["not_finite"], 32)
        self.assertGreater(p["outputs"][0]["observed"], 0.1)

    def test_overflow_is_beyond_the_tolerance(self):
        # What is stored in 16 bits where it does not fit.
        self.small(gauss(256, 3), [node("mul", ["y", 1e6], "big"), node("mul", ["big", 1e-6], "z")], ["z"], dtype="f32")
        g = json.loads(self.read("s.json"))
        g["precision"] = {"mode": "f16", "tolerance": 0.02, "pin": {"big": "f16"}}
        self.write("s.json", g)
        p = self.observe()
        self.assertFalse(p["within"])
        self.assertIsNone(p["outputs"][0]["measured"])

    def test_outputs_without_an_error_of_their_own(self):
        self.small(gauss(256, 3), [node("argmax", ["y"], "best", dim=1), node("gt", ["y", 0.0], "is")], ["y", "best", "is"], 0.1)
        p = self.observe("s.json", "-o", "c.json")
        self.assertEqual([o["name"] for o in p["outputs"]], ["y"])
        self.assertTrue(p["within"])
        self.assertEqual(list(json.loads(self.read("c.json"))["precision"]["observed"]), ["y"])

    def test_again(self):
        self.small(gauss(256, 3), [node("quantize", ["y"], ["q", "qs"], dtype="i8", granularity="token"),
                                   node("dequantize", ["q", "qs"], "z", granularity="token", dtype="bf16")], ["y", "z"], 0.1)
        first = self.observe("s.json", "-o", "c.json")
        self.assertEqual(self.observe("c.json", "-o", "c.json"), first)
        g = json.loads(self.read("c.json"))
        g["precision"]["mode"] = "keep"
        self.write("keep.json", g)
        self.ok("calibrate", "keep.json", "--data", "one", "--params", "p.safetensors", "--target", "cpu")

    def test_samples_are_not_replaced(self):
        self.small(gauss(256, 3))
        before = self.read("one/0.safetensors")
        os.symlink(self.path("one/0.safetensors"), self.path("link.json"))
        for output in ("one/0.safetensors", "link.json", "p.safetensors"):
            self.fails(1, "calibrate", "s.json", "--data", "one", "--params", "p.safetensors", "--target", "cpu", "-o", output)
        self.assertEqual(self.read("one/0.safetensors"), before)

    def test_what_cannot_be(self):
        self.prepare(1e-6)
        self.assertIn("no types were found with which every output's measured error is within the tolerance",
                      self.calibrate().stdout)
        self.prepare(0.02, observed={"x": 1})
        self.fails(2, "verify", "g.json", "--dim", "B=1", place="g.json:/precision/observed/x")


class Params(Cli):
    def test_where_parameters_come_from(self):
        self.write("g.json", graph([node("mul", ["x", "w"], "a"), node("add", ["a", "b"])],
                                   parameters={"w": {"dtype": "f32", "shape": [3]}, "b": {"dtype": "f32", "shape": [3]}}))
        self.data(b=("F32", [3], T.f32(7, 7, 7)), w=("F32", [3], T.f32(9, 9, 9)))
        T.save(self.path("p.safetensors"), {"w": ("F32", [3], T.f32(1, 10, 100))})
        T.save(self.path("q.safetensors"), {"w": ("F32", [3], T.f32(5, 5, 5)), "b": ("F32", [3], T.f32(1, 1, 1))})
        run = ["run", "g.json", "--inputs", "in.safetensors", "--outputs", "o.safetensors", "--target", "reference"]
        for params, want in (([], [7, 16, 25, 34, 43, 52]), (["p"], [7, 17, 207, 10, 47, 507]), (["p", "q"], [1, 11, 201, 4, 41, 501]),
                             (["q", "p"], [1, 6, 11, 16, 21, 26])):
            self.ok(*run, *[a for p in params for a in ("--params", p + ".safetensors")])
            self.assertEqual(T.values(*T.load(self.path("o.safetensors"))["y"][::2]), want)
        # Inputs are never parameters, and what is made up is what no file has.
        T.save(self.path("x.safetensors"), {"x": ("F32", [2, 3], T.f32(*[0] * 6))})
        self.ok(*run, "--params", "x.safetensors")
        self.assertEqual(T.values(*T.load(self.path("o.safetensors"))["y"][::2]), [7, 16, 25, 34, 43, 52])
        T.save(self.path("z.safetensors"), {"w": ("F32", [3], T.f32(0, 0, 0)), "b": ("F32", [3], T.f32(1, 2, 3))})
        self.ok("run", "g.json", "--inputs", "random", "--params", "z.safetensors", "--outputs", "o.safetensors", "--target", "cpu")
        self.assertEqual(T.values(*T.load(self.path("o.safetensors"))["y"][::2]), [1, 2, 3, 1, 2, 3])
        T.save(self.path("bad.safetensors"), {"w": ("F32", [4], T.f32(0, 0, 0, 0))})
        for inputs in ("in.safetensors", "random"):
            self.fails(2, "run", "g.json", "--inputs", inputs, "--params", "bad.safetensors", place="bad.safetensors:/w")
        self.fails(2, "verify", "g.json", "--params", "no.safetensors", place="no.safetensors:")


if __name__ == "__main__":
    unittest.main()
