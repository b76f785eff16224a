#!/usr/bin/env python3
# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command line end to end: conformance cases, help, errors and their places, files written and not written.

usage: cli_test.py [unittest arguments], with the program in $RIDGELINE and the source folder in $RIDGELINE_SOURCE."""
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tensors as T  # noqa: E402

SOURCE = pathlib.Path(os.environ.get("RIDGELINE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
PROGRAM = os.environ.get("RIDGELINE", str(SOURCE / "build/release/bin/ridgeline"))
CASES = SOURCE / "tests/cases"
COMMANDS = ["compile", "run", "explain", "dump", "bench", "verify", "calibrate", "targets", "cache"]


def graph(nodes, inputs=None, outputs=("y",), **more):
    g = {"ridgeline": 1, "name": "g", "inputs": inputs or {"x": {"dtype": "f32", "shape": [2, 3]}}, "nodes": nodes,
         "outputs": list(outputs)}
    g.update(more)
    return g


def node(op, inputs, output="y", **attrs):
    n = {"op": op, "inputs": inputs, "outputs": [output] if isinstance(output, str) else output}
    if attrs:
        n["attrs"] = attrs
    return n


CHAIN = graph([node("mul", ["x", 2.0], "a"), node("add", ["a", 1.0])])
SYMBOLIC = graph([node("add", ["x", "b"])], inputs={"x": {"dtype": "f32", "shape": ["B", 3]}, "b": {"dtype": "f32", "shape": [3]}},
                 dims={"B": {"min": 1, "max": 4096}})


class Cli(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ridgeline-cli-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.environment = dict(os.environ, XDG_CACHE_HOME=self.path("xdg"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as f:
            f.write(content if isinstance(content, bytes) else (content if isinstance(content, str) else json.dumps(content)).encode())
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()

    def start(self, *args, **more):
        return subprocess.run([PROGRAM, *args], capture_output=True, text=True, timeout=120, env=self.environment,
                              cwd=self.folder, **more)

    def ok(self, *args):
        r = self.start(*args)
        self.assertEqual(r.returncode, 0, f"{args}: {r.stdout}\n{r.stderr}")
        return r

    def fails(self, status, *args, place=None, mentions=()):
        """Exit status, one error line, its place; and that no file came into being."""
        before = sorted(self.listing())
        r = self.start(*args)
        self.assertEqual(r.returncode, status, f"{args}: {r.stdout}\n{r.stderr}")
        lines = [l for l in r.stderr.splitlines() if not l.startswith("note: ")]
        self.assertTrue(lines and lines[0].startswith("error: "), r.stderr)
        if status != 1:
            self.assertEqual(len(lines), 1, r.stderr)
        if place is not None:
            self.assertTrue(lines[0].startswith(f"error: {place}: "), f"{lines[0]!r} is not at {place}")
        for word in mentions:
            self.assertIn(word, r.stderr)
        self.assertEqual(sorted(self.listing()), before, "a file was left behind")
        return r

    def listing(self):
        for folder, names, files in os.walk(self.folder):
            if os.path.relpath(folder, self.folder).split(os.sep)[0] == "xdg":
                continue
            for f in files + [n for n in names if n != "xdg"]:
                yield os.path.relpath(os.path.join(folder, f), self.folder)

    def data(self, name="in.safetensors", **extra):
        tensors = {"x": ("F32", [2, 3], T.f32(0, 1, 2, 3, 4, 5))}
        tensors.update(extra)
        T.save(self.path(name), tensors)
        return self.path(name)


class Conformance(Cli):
    """Every folder of tests/cases."""

    def run_case(self, folder):
        name = folder.name
        out = self.path(name + ".safetensors")
        r = self.start("run", str(folder / "graph.json"), "--inputs", str(folder / "in.safetensors"), "--outputs", out, "--target",
                       "reference")
        if (folder / "expected.txt").exists():
            text = (folder / "expected.txt").read_text()
            self.assertEqual(r.returncode, int(re.match(r"exit (\d+)", text)[1]), r.stderr)
            place = re.search(r"error: FILE:(.*?): ", text)[1]
            file = folder / ("in.safetensors" if name.startswith("data_") else "graph.json")
            self.assertTrue(r.stderr.startswith(f"error: {file}:{place}: "), r.stderr)
            self.assertEqual(len(r.stderr.splitlines()), 1)
            self.assertFalse(os.path.exists(out))
            return
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(r.stderr, "")
        got, want = T.load(out), T.load(folder / "expected.safetensors")
        g = json.loads((folder / "graph.json").read_text())
        self.assertEqual(sorted(got), sorted(g["outputs"]))
        loose = {"relative": 1e-4, "of_greatest": 1e-4} if name.startswith("time_embedding") else {}
        exact = g.get("numerics") == "strict" and name != "llama_block_strict_f32"
        for output in g["outputs"]:
            self.assertIsNone(T.difference(got[output], want[output], exact=exact, **loose), output)
        os.unlink(out)

    def test_cases_on_reference(self):
        folders = sorted(f for f in CASES.iterdir() if f.is_dir())
        self.assertGreaterEqual(len(folders), 50)
        for folder in folders:
            with self.subTest(folder.name):
                self.run_case(folder)

    def test_cases_on_cpu(self):
        ran = 0
        for folder in sorted(f for f in CASES.iterdir() if f.is_dir()):
            if (folder / "expected.txt").exists():
                continue
            with self.subTest(folder.name):
                out = self.path("out.safetensors")
                args = ["--target", "cpu", "--cache", "off"]
                r = self.start("run", str(folder / "graph.json"), "--inputs", str(folder / "in.safetensors"), "--outputs", out, *args)
                if r.returncode == 3:
                    self.assertRegex(r.stderr, r"^error: .*graph\.json:/(nodes/\d+|gradient|precision)\S*: .")
                    self.assertFalse(os.path.exists(out))
                    continue
                self.assertEqual(r.returncode, 0, r.stderr)
                ran += 1
                g = json.loads((folder / "graph.json").read_text())
                if g.get("numerics") != "strict" and re.search(r'"(f16|bf16)"', json.dumps(g)) and re.search(
                        "matmul|linear|attention", json.dumps(g)):
                    # What is expected is rounded after every node. Fused results are right where they keep f32, too, which verify
                    # knows, and strict ones must be as expected.
                    tolerance = ["--tolerance", "1e-2"] if folder.name.startswith("time_embedding") else []
                    self.ok("verify", str(folder / "graph.json"), "--inputs", str(folder / "in.safetensors"), *args, *tolerance)
                    g["numerics"] = "strict"
                    self.write("strict.json", g)
                    self.ok("run", "strict.json", "--inputs", str(folder / "in.safetensors"), "--outputs", out, *args)
                got, want = T.load(out), T.load(folder / "expected.safetensors")
                loose = {"relative": 1e-4, "of_greatest": 1e-4} if folder.name.startswith("time_embedding") else {}
                exact = '"strict"' in (folder / "graph.json").read_text() and folder.name != "llama_block_strict_f32"
                for output in g["outputs"]:
                    self.assertIsNone(T.difference(got[output], want[output], exact=exact, **loose), output)
                os.unlink(out)
        self.assertGreaterEqual(ran, 40)


class Help(Cli):
    def test_help_of_everything(self):
        r = self.ok("--help")
        for c in COMMANDS:
            self.assertIn(c, r.stdout)
        self.assertIn("Example", r.stdout)
        self.assertIn("Exit status", r.stdout)
        self.assertEqual(self.ok("-h").stdout, r.stdout)
        for c in COMMANDS:
            r = self.ok(c, "--help")
            self.assertEqual(r.stderr, "")
            self.assertIn("Example", r.stdout, c)
            self.assertIn("ridgeline " + c, r.stdout)
            self.assertIn("--cache", r.stdout)

    def test_version(self):
        self.assertRegex(self.ok("--version").stdout, r"^ridgeline \d+\.\d+\.\d+\n$")

    def test_help_is_quick(self):
        times = []
        for _ in range(20):
            start = time.perf_counter()
            self.ok("--help")
            times.append(time.perf_counter() - start)
        # The aim is 30 ms on a machine at rest; the best of many runs on a busy one is held to twice that.
        self.assertLess(min(times), 0.06)

    def test_targets(self):
        out = self.ok("targets").stdout
        for t in ("reference", "cpu", "cuda", "h200", "sm_90a", "sm_80"):
            self.assertRegex(out, rf"(?m)^{t} ")
        self.assertRegex(out, r"(?m)^reference .*runs here")


class Usage(Cli):
    def usage(self, *args, mentions=()):
        r = self.fails(1, *args, mentions=mentions)
        return r

    def test_arguments(self):
        self.write("g.json", CHAIN)
        self.usage()
        self.usage("fuse", mentions=["'fuse'"])
        self.usage("--fuse", mentions=["'--fuse'"])
        self.usage("run")
        self.usage("run", "g.json", mentions=["--inputs"])
        self.usage("run", "g.json", "--inputs", "random", "--speed", "9", mentions=["--speed", "--help"])
        self.usage("run", "g.json", "--inputs", "random", "extra")
        self.usage("run", "g.json", "--inputs", "random:x")
        self.usage("run", "g.json", "--inputs", "random:-1")
        self.usage("run", "g.json", "--inputs", "random", "--target", "tpu", mentions=["tpu", "reference", "h200"])
        self.usage("explain", "g.json", "--format", "xml", mentions=["xml", "html"])
        self.usage("dump", "g.json", "--stage", "wasm", mentions=["wasm", "ptx"])
        self.usage("dump", "g.json")
        self.usage("bench", "g.json", "--repeat", "0")
        self.usage("bench", "g.json", "--repeat", "many")
        self.usage("verify", "g.json", "--tolerance", "-1")
        self.usage("cache", "polish")
        self.usage("compile", self.folder)
        self.usage("compile", "g.json", "-o", "", mentions=["--output", "empty"])
        self.usage("run", "g.json", "--inputs", "", mentions=["--inputs", "empty"])

    def test_dims(self):
        self.write("g.json", SYMBOLIC)
        for text in ("B", "=3", "B=", "B=x", "B=-1", "B=1.5", "C=3"):
            self.usage("verify", "g.json", "--target", "reference", "--dim", text, mentions=["--dim"])
        self.usage("verify", "g.json", "--target", "reference", "--dim", "B=2", "--dim", "B=3")
        self.fails(2, "verify", "g.json", "--target", "reference", "--dim", "B=5000", place="g.json:/dims/B")


class BadGraphs(Cli):
    def refused(self, content, pointer, status=2, **more):
        self.write("g.json", content)
        self.data()
        for args in (["run", "g.json", "--inputs", "in.safetensors", "--outputs", "out.safetensors", "--target", "reference"],
                     ["verify", "g.json", "--target", "reference"], ["compile", "g.json", "-o", "pkg", "--target", "cpu"],
                     ["explain", "g.json", "--target", "cpu"], ["dump", "g.json", "--stage", "graph", "--target", "cpu"],
                     ["bench", "g.json", "--target", "reference"]):
            self.fails(status, *args, place=f"g.json:{pointer}", **more)

    def test_syntax(self):
        self.refused("", "")
        self.refused("{", "")
        self.refused(b"\xff\xfe\x00", "")
        self.refused("[]", "")
        self.refused(json.dumps(CHAIN) + "}", "")

    def test_content(self):
        self.refused(graph([node("mul", ["x", "z"])]), "/nodes/0/inputs/1")
        self.refused(graph([node("mull", ["x", 1])]), "/nodes/0/op", mentions=["mull"])
        self.refused(graph([node("mul", ["x", 1], "a")]), "/outputs/0")
        self.refused(dict(CHAIN, colour="red"), "/colour")

    def test_control_characters_stay_on_one_line(self):
        self.write("g.json", graph([node("mul\n\x1b[31m", ["x", 1])]))
        r = self.fails(2, "verify", "g.json", "--target", "reference")
        self.assertNotIn("\x1b", r.stderr)

    def test_files(self):
        for args in (["run", "no.json", "--inputs", "random"], ["verify", "no.json"], ["explain", "no.json"], ["bench", "no.json"],
                     ["compile", "no.json", "-o", "pkg"], ["dump", "no.json", "--stage", "graph"]):
            self.fails(2, *args, place="no.json:", mentions=["cannot open"])
        os.mkdir(self.path("folder"))
        self.fails(2, "run", "folder", "--inputs", "random")

    def test_huge_file(self):
        with open(self.path("g.json"), "wb") as f:
            f.truncate((256 << 20) + 1)
        self.fails(2, "verify", "g.json", "--target", "reference", place="g.json:")


class BadData(Cli):
    def refused(self, pointer, status=2, file="in.safetensors", **more):
        for target in ("reference", "cpu"):
            self.fails(status, "run", "g.json", "--inputs", "in.safetensors", "--outputs", "out.safetensors", "--target", target,
                       place=f"{file}:{pointer}", **more)

    def test_tensors(self):
        self.write("g.json", graph([node("add", ["x", "w"])], parameters={"w": {"dtype": "f32", "shape": [3]}}))
        self.data()
        self.refused("/w", mentions=["w"])
        self.data(w=("F32", [2], T.f32(1, 2)))
        self.refused("/w")
        self.data(w=("I32", [3], T.f32(1, 2, 3)))
        self.refused("/w")
        self.data(w=("F32", [3], T.f32(1, 2, 3)), unrelated=("F64", [1], b"12345678"))
        self.ok("run", "g.json", "--inputs", "in.safetensors", "--outputs", "out.safetensors", "--target", "reference")
        self.assertEqual(T.values(*T.load(self.path("out.safetensors"))["y"][::2]), [1, 3, 5, 4, 6, 8])

    def test_files(self):
        self.write("g.json", CHAIN)
        self.refused("")  # there is none
        self.write("in.safetensors", b"")
        self.refused("")
        self.write("in.safetensors", b"\xff" * 64)
        self.refused("")
        good = self.read(self.data())
        self.write("in.safetensors", good[:-1])
        self.refused("/x/data_offsets")

    def test_bool_bytes(self):
        self.write("g.json", graph([node("logical_not", ["x"])], inputs={"x": {"dtype": "bool", "shape": [2]}}))
        T.save(self.path("in.safetensors"), {"x": ("BOOL", [2], b"\x01\x02")})
        self.refused("/x")

    def test_index_out_of_range_at_run_time(self):
        self.write("g.json", graph([node("index_select", ["x", "i"], dim=0)],
                                   inputs={"x": {"dtype": "f32", "shape": [2, 3]}, "i": {"dtype": "i64", "shape": [1]}}))
        self.data(i=("I64", [1], T.i64(2)))
        self.fails(2, "run", "g.json", "--inputs", "in.safetensors", "--outputs", "o.safetensors", "--target", "reference",
                   place="g.json:/nodes/0")
        self.fails(2, "run", "g.json", "--inputs", "in.safetensors", "--outputs", "o.safetensors", "--target", "cpu",
                   place="in.safetensors:/i", mentions=["index out of range"])

    def test_index_out_of_range_behind_a_product(self):
        self.write("g.json", graph([node("matmul", ["x", "w"], "h"), node("embedding", ["t", "i"], "e"), node("add", ["h", "e"])],
                                   inputs={"x": {"dtype": "f32", "shape": [2, 3]}, "i": {"dtype": "i64", "shape": [2]}},
                                   parameters={"w": {"dtype": "f32", "shape": [3, 4]}, "t": {"dtype": "f32", "shape": [5, 4]}}))
        T.save(self.path("in.safetensors"),
               {"x": ("F32", [2, 3], T.f32(*range(6))), "i": ("I64", [2], T.i64(0, 5)),
                "w": ("F32", [3, 4], T.f32(*range(12))), "t": ("F32", [5, 4], T.f32(*range(20)))})
        self.fails(2, "run", "g.json", "--inputs", "in.safetensors", "--outputs", "o.safetensors", "--target", "cpu", "--cache", "off",
                   place="in.safetensors:/i", mentions=["index out of range"])

    def test_symbolic_shapes(self):
        self.write("g.json", SYMBOLIC)
        T.save(self.path("in.safetensors"), {"x": ("F32", [2, 4], T.f32(*range(8))), "b": ("F32", [3], T.f32(1, 2, 3))})
        self.refused("/x")
        T.save(self.path("in.safetensors"), {"x": ("F32", [0, 3], b""), "b": ("F32", [3], T.f32(1, 2, 3))})
        self.refused("/x")


class Unsupported(Cli):
    def test_places(self):
        self.write("g.json", graph([node("mul", ["x", "x"], "a"), node("add", ["a", 1.0])],
                                   gradient={"of": {"y": "x"}, "wrt": ["x"]}))
        self.fails(3, "verify", "g.json", "--target", "cpu", "--cache", "off")
        self.write("g.json", SYMBOLIC)
        self.fails(3, "compile", "g.json", "-o", "pkg", "--target", "cpu", place="g.json:/dims/B", mentions=["--dim"])
        self.write("g.json", CHAIN)
        self.fails(3, "compile", "g.json", "-o", "pkg", "--target", "reference")
        self.fails(3, "dump", "g.json", "--stage", "ptx", "--target", "cpu", mentions=["llvm"])
        self.fails(3, "dump", "g.json", "--stage", "sass", "--target", "cpu")
        self.fails(3, "dump", "g.json", "--stage", "graph", "--target", "reference")


class Device(Cli):
    def test_compile_only_target_does_not_run(self):
        self.write("g.json", CHAIN)
        if re.search(r"(?m)^rtx4090 .*runs here", self.ok("targets").stdout):
            self.skipTest("this machine runs it")
        self.fails(4, "run", "g.json", "--inputs", "random", "--outputs", "o.safetensors", "--target", "rtx4090", mentions=["rtx4090"])
        self.fails(4, "bench", "g.json", "--target", "rtx4090")

    def test_tuning_needs_a_gpu_of_the_target(self):
        self.environment["RIDGELINE_LIBCUDA"] = "/nonexistent/libcuda.so.1"
        self.write("g.json", CHAIN)
        for command in (["compile", "g.json", "-o", "p"], ["run", "g.json", "--inputs", "random"], ["explain", "g.json"],
                        ["bench", "g.json"], ["verify", "g.json"]):
            self.fails(3, *command, "--tune", place="g.json:", mentions=["tuning", "cpu"])
        self.fails(3, "compile", "--tune", "g.json", "--target", "reference", mentions=["tuning"])
        self.fails(3, "run", "--tune", "g.json", "--inputs", "random", "--target", "reference", mentions=["tuning"])
        self.fails(4, "compile", "--tune=8", "g.json", "--target", "h200", mentions=["tuning", "sm_90a", "does not run"])
        self.fails(4, "explain", "g.json", "--tune", "--target", "cuda", mentions=["libcuda"])
        for count in ("1", "9", "x", "0x4"):
            self.fails(1, "compile", "g.json", "--tune=" + count, mentions=["--tune"])
        self.fails(1, "dump", "g.json", "--tune", "--stage", "graph")
        self.fails(1, "verify", "g.json", "--tolerance", "nan", mentions=["--tolerance"])
        self.ok("compile", "g.json", "-o", "p", "--target", "cpu")
        self.fails(1, "run", "p", "--inputs", "random", "--tune", mentions=["--tune", "package"])
        self.fails(1, "explain", "p", "--tune", mentions=["--tune", "package"])

    def test_tuning_measures_once(self):
        driver = pathlib.Path(PROGRAM).resolve().parents[1] / "lib/librl_fake_cuda.so"
        if not driver.exists():
            self.skipTest("the driver without a GPU is not built")
        self.environment["RIDGELINE_LIBCUDA"] = str(driver)
        bf16 = lambda *shape: {"dtype": "bf16", "shape": list(shape)}  # noqa: E731
        self.write("g.json", graph([node("matmul", ["x", "w"], "h"), node("relu", ["h"])], {"x": bf16(256, 512), "w": bf16(512, 512)}))
        model = self.ok("explain", "g.json", "--target", "cuda").stdout
        self.assertNotIn("measure", model)
        self.assertRegex(model, r"tiles   predicted us: mma .*: [0-9.]+ \*; ")
        first = self.ok("compile", "g.json", "--target", "cuda", "--tune", "-v", "-o", "p")
        self.assertIn("tuned: 1 kernel measured now", first.stderr)
        again = self.ok("explain", "g.json", "--target", "cuda", "--tune", "-v")
        self.assertIn("tuned: 0 kernels measured now", again.stderr)
        self.assertIn("chosen by measurement: ", again.stdout)
        self.assertEqual(self.ok("explain", "p").stdout, again.stdout)
        self.assertEqual(self.ok("explain", "g.json", "--target", "cuda").stdout, model)
        quiet = self.ok("compile", "g.json", "--target", "cuda", "--tune=2", "-q")
        self.assertEqual((quiet.stdout, quiet.stderr), ("", ""))

    def test_outputs_that_cannot_be_written(self):
        self.write("g.json", CHAIN)
        self.data()
        os.mkdir(self.path("folder"))
        run = ["run", "g.json", "--inputs", "in.safetensors", "--target", "reference", "--outputs"]
        self.fails(4, *run, "nowhere/out.safetensors", place="nowhere/out.safetensors")
        self.fails(4, *run, "folder", place="folder")
        self.fails(4, *run, "/dev/full")
        self.fails(4, "compile", "g.json", "--target", "cpu", "-o", "nowhere/pkg", place="nowhere/pkg")
        self.fails(4, "compile", "g.json", "--target", "cpu", "-o", "g.json", place="g.json")
        self.fails(4, "dump", "g.json", "--target", "cpu", "--stage", "graph", "--dump-dir", "nowhere/d", place="nowhere/d")
        self.ok(*run, "/dev/null")

    def test_standard_output_that_cannot_be_written(self):
        self.write("g.json", CHAIN)
        for args in (["--help"], ["targets"], ["run", "g.json", "--inputs", "random", "--target", "reference"],
                     ["explain", "g.json", "--target", "reference"]):
            with open("/dev/full", "w") as full:
                r = subprocess.run([PROGRAM, *args], stdout=full, stderr=subprocess.PIPE, text=True, env=self.environment, cwd=self.folder)
            self.assertEqual(r.returncode, 4, args)
            self.assertTrue(r.stderr.startswith("error: "))

    def test_existing_output_survives_a_failure(self):
        self.write("g.json", graph([node("add", ["x", "w"])], parameters={"w": {"dtype": "f32", "shape": [3]}}))
        self.data()
        self.write("out.safetensors", b"precious")
        self.fails(2, "run", "g.json", "--inputs", "in.safetensors", "--outputs", "out.safetensors", "--target", "reference")
        self.assertEqual(self.read("out.safetensors"), b"precious")

    def test_memory(self):
        self.write("g.json", graph([node("add", ["x", 1.0])], inputs={"x": {"dtype": "f32", "shape": [1 << 40]}}))
        self.fails(4, "run", "g.json", "--inputs", "random", "--target", "cpu", mentions=["memory"])


class Run(Cli):
    def result(self, *args):
        self.ok("run", *args, "--outputs", "out.safetensors")
        return T.load(self.path("out.safetensors"))

    def test_targets_agree(self):
        self.write("g.json", CHAIN)
        self.data()
        for target in ("reference", "cpu"):
            got = self.result("g.json", "--inputs", "in.safetensors", "--target", target)
            self.assertEqual(got["y"], ("F32", [2, 3], T.f32(1, 3, 5, 7, 9, 11)))

    def test_global_options_before_and_after(self):
        self.write("g.json", CHAIN)
        self.data()
        self.ok("--target", "reference", "run", "g.json", "--inputs", "in.safetensors", "--outputs", "out.safetensors")
        self.ok("run", "--target=reference", "--inputs=in.safetensors", "--outputs=out.safetensors", "g.json")

    def test_outputs_over_inputs(self):
        self.write("g.json", graph([node("add", ["x", 1.0])]))
        self.data()
        for target in ("reference", "cpu"):
            self.ok("run", "g.json", "--inputs", "in.safetensors", "--outputs", "copy.safetensors", "--target", target)
        os.rename(self.path("in.safetensors"), self.path("out.safetensors"))
        got = self.result("g.json", "--inputs", "out.safetensors", "--target", "cpu")
        self.assertEqual(got["y"][2], T.f32(1, 2, 3, 4, 5, 6))

    def test_unaligned_data(self):
        self.write("g.json", CHAIN)
        for shift in range(8):  # of the data in the file
            text = json.dumps({"a": {"dtype": "U8", "shape": [shift], "data_offsets": [0, shift]},
                               "x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [shift, shift + 24]}}).encode()
            self.write("in.safetensors", len(text).to_bytes(8, "little") + text + b"?" * shift + T.f32(0, 1, 2, 3, 4, 5))
            for target in ("reference", "cpu"):
                got = self.result("g.json", "--inputs", "in.safetensors", "--target", target)
                self.assertEqual(got["y"][2], T.f32(1, 3, 5, 7, 9, 11))

    def test_empty_and_rank_0(self):
        self.write("g.json", graph([node("mul", ["e", 2.0], "z"), node("add", ["s", 1.0])], outputs=["y", "z", "s"],
                                   inputs={"e": {"dtype": "f32", "shape": [0, 3]}, "s": {"dtype": "f32", "shape": []}}))
        T.save(self.path("in.safetensors"), {"e": ("F32", [0, 3], b""), "s": ("F32", [], T.f32(41))})
        for target in ("reference", "cpu"):
            got = self.result("g.json", "--inputs", "in.safetensors", "--target", target)
            self.assertEqual(got, {"y": ("F32", [], T.f32(42)), "z": ("F32", [0, 3], b""), "s": ("F32", [], T.f32(41))})

    def test_symbolic_dims_take_the_files_extents(self):
        self.write("g.json", SYMBOLIC)
        for extent in (1, 2, 7):
            T.save(self.path("in.safetensors"), {"x": ("F32", [extent, 3], T.f32(*range(3 * extent))), "b": ("F32", [3], T.f32(1, 2, 3))})
            for target in ("reference", "cpu"):
                got = self.result("g.json", "--inputs", "in.safetensors", "--target", target)
                self.assertEqual(got["y"], ("F32", [extent, 3], T.f32(*(i + i % 3 + 1 for i in range(3 * extent)))))
        self.ok("run", "g.json", "--inputs", "in.safetensors", "--dim", "B=7", "--outputs", "o.safetensors", "--target", "reference")
        self.fails(1, "run", "g.json", "--inputs", "in.safetensors", "--dim", "B=6", "--target", "reference", mentions=["B=7"])

    def test_summary_without_outputs(self):
        self.write("g.json", CHAIN)
        self.data()
        out = self.ok("run", "g.json", "--inputs", "in.safetensors", "--target", "reference").stdout
        self.assertEqual(out, "y: f32 [2, 3]: min 1, max 11, mean 6\n")


class Random(Cli):
    def made(self, g, seed="random", *args):
        self.write("g.json", g)
        self.ok("run", "g.json", "--inputs", seed, "--outputs", "out.safetensors", "--target", "reference", *args)
        return T.load(self.path("out.safetensors"))

    def test_same_seed_same_data(self):
        kinds = ["f32", "f16", "bf16", "f8e4m3", "f8e5m2", "f8e8m0", "i8", "u8", "i32", "i64", "bool"]
        g = graph([], inputs={k: {"dtype": k, "shape": [1000]} for k in kinds}, outputs=kinds)
        first = self.made(g)
        self.assertEqual(first, self.made(g, "random:0"))
        other = self.made(g, "random:1")
        for k in kinds:
            self.assertNotEqual(first[k], other[k], k)
        for k in ("f32", "f16", "bf16"):
            v = T.values(first[k][0], first[k][2])
            self.assertLess(abs(sum(v) / 1000), 0.15)
            self.assertLess(abs(sum(x * x for x in v) / 1000 - 1), 0.15)
            self.assertLess(max(map(abs, v)), 3.5)
        self.assertNotEqual(T.values("F32", first["f32"][2])[:8], [round(x, 3) for x in T.values("BF16", first["bf16"][2])[:8]])
        self.assertEqual(set(T.values("I8", first["i8"][2])), set(range(-8, 9)))
        self.assertEqual(set(T.values("U8", first["u8"][2])), set(range(0, 17)))
        self.assertEqual(set(T.values("I64", first["i64"][2])), set(range(-8, 9)))
        self.assertEqual(set(T.values("BOOL", first["bool"][2])), {0, 1})

    def test_threads_do_not_matter(self):
        n = 5 << 20  # made by several threads
        big = self.made(graph([node("slice", ["x"], dim=0, start=n - 5)], inputs={"x": {"dtype": "f32", "shape": [n]}}))
        again = self.made(graph([node("slice", ["x"], dim=0, start=n - 5)], inputs={"x": {"dtype": "f32", "shape": [n]}}))
        self.assertEqual(big, again)
        self.assertEqual(len(set(T.values("F32", big["y"][2]))), 5)

    def test_indices_are_in_range(self):
        got = self.made(graph([node("reshape", ["i"], "j", shape=[64]), node("embedding", ["table", "j"], "e"),
                               node("cross_entropy", ["logits", "t"], "l"), node("gather", ["table", "k"], "g", dim=1)],
                              inputs={"table": {"dtype": "f32", "shape": [3, 2]}, "i": {"dtype": "i64", "shape": [8, 8]},
                                      "logits": {"dtype": "f32", "shape": [50, 5]}, "t": {"dtype": "i64", "shape": [50]},
                                      "k": {"dtype": "i32", "shape": [3, 9]}}, outputs=["i", "t", "k", "e", "l", "g"]))
        self.assertEqual(set(T.values("I64", got["i"][2])), {0, 1, 2})
        self.assertEqual(set(T.values("I64", got["t"][2])), {0, 1, 2, 3, 4})
        self.assertEqual(set(T.values("I32", got["k"][2])), {0, 1})

    def test_roots_are_of_positive_numbers(self):
        got = self.made(graph([node("mul", ["v", 0.5], "h"), node("square", ["x"], "q"), node("add", ["h", "q"], "s"), node("sqrt", ["s"])],
                              inputs={"v": {"dtype": "f32", "shape": [500]}, "x": {"dtype": "f32", "shape": [500]}}, outputs=["y", "v", "x"]))
        self.assertGreater(min(T.values("F32", got["v"][2])), 0)
        self.assertLess(min(T.values("F32", got["x"][2])), 0)
        self.assertTrue(all(v == v for v in T.values("F32", got["y"][2])))

    def test_default_extents(self):
        self.write("g.json", SYMBOLIC)
        r = self.ok("run", "g.json", "--inputs", "random", "--target", "reference")
        self.assertIn("y: f32 [64, 3]", r.stdout)
        self.assertIn("note: B=64", r.stderr)
        r = self.ok("run", "g.json", "--inputs", "random", "--target", "reference", "--dim", "B=5")
        self.assertIn("y: f32 [5, 3]", r.stdout)
        self.assertEqual(r.stderr, "")


class Products(Cli):
    """Quantised products of every granularity on random data against the interpreter; and that a GPU's code is made."""

    def scale(self, rng, shape, who, transposed):
        granularity = rng.choice(["tensor", "token", "axis", "block"])
        rows = who == "a" or transposed  # the extent that is not summed over is the last but one
        if granularity == "token" and not rows:
            granularity = "tensor"
        attrs = {f"granularity_{who}": granularity}
        if granularity == "tensor":
            return [], attrs
        if granularity == "token":
            return shape[:-1], attrs
        if granularity == "axis":
            axis = len(shape) - (2 if rows else 1)
            attrs[f"axis_{who}"] = axis
            return [shape[axis]], attrs
        block = rng.choice([[1, 128], [128, 128], [1, 32], [16, 16]])
        attrs[f"block_{who}"] = block
        return shape[:-2] + [-(-shape[-2] // block[0]), -(-shape[-1] // block[1])], attrs

    def test_scaled(self):
        rng = random.Random(11)
        for seed in range(30):
            m, n, k = (rng.choice([1, 3, 7, 32, 130]) for _ in range(3))
            transposed, batch = rng.random() < 0.6, rng.choice([[], [], [2]])
            a = rng.choice(["f8e4m3", "f8e5m2", "i8"])
            b = "i8" if a == "i8" else rng.choice(["f8e4m3", "f8e5m2"])
            shape_a, shape_b = batch + [m, k], batch + ([n, k] if transposed else [k, n])
            scale_a, attrs = self.scale(rng, shape_a, "a", transposed)
            scale_b, more = self.scale(rng, shape_b, "b", transposed)
            attrs.update(more, out_dtype=rng.choice(["f32", "bf16", "f16"]), transpose_b=transposed)
            g = graph([node("scaled_matmul", ["a", "b", "s", "t"], **attrs)],
                      inputs={"a": {"dtype": a, "shape": shape_a}, "b": {"dtype": b, "shape": shape_b},
                              "s": {"dtype": "f32", "shape": scale_a}, "t": {"dtype": "f32", "shape": scale_b}},
                      numerics=rng.choice(["fused", "strict"]))
            with self.subTest(seed=seed, graph=json.dumps(g)):
                path = self.write("g.json", g)
                self.ok("verify", path, "--target", "cpu", "--cache", "off", "--inputs", f"random:{seed}")
                self.ok("compile", path, "--target", "sm_90a", "--cache", "off", "-q")


class Compiling(Cli):
    def test_package_round_trip(self):
        self.write("g.json", graph([node("add", ["x", "w"], "a"), node("tanh", ["a"])], parameters={"w": {"dtype": "f32", "shape": [3]}}))
        self.data(w=("F32", [3], T.f32(1, 2, 3)))
        r = self.ok("compile", "g.json", "-o", "pkg", "--target", "cpu")
        self.assertIn("1 fused kernel", r.stdout)
        self.assertTrue(os.path.exists(self.path("pkg/manifest.json")))
        os.rename(self.path("pkg"), self.path("moved"))
        self.ok("run", "moved", "--inputs", "in.safetensors", "--outputs", "a.safetensors")
        self.ok("run", "g.json", "--inputs", "in.safetensors", "--outputs", "b.safetensors", "--target", "cpu")
        self.assertEqual(T.load(self.path("a.safetensors")), T.load(self.path("b.safetensors")))
        self.ok("run", "moved", "--inputs", "random", "--target", "cpu")
        self.assertIn("kernel", self.ok("explain", "moved").stdout)
        self.assertIn("ok", self.ok("verify", "moved").stdout)
        self.fails(1, "run", "moved", "--inputs", "random", "--target", "reference")
        self.fails(1, "run", "moved", "--inputs", "random", "--dim", "B=1")
        T.save(self.path("short.safetensors"), {"x": ("F32", [2, 3], bytes(24))})
        self.fails(2, "run", "moved", "--inputs", "short.safetensors", "--outputs", "o", place="short.safetensors:/w")
        self.ok("compile", "g.json", "-o", "moved", "--target", "cpu")  # replaces it

    def test_other_folders_are_not_replaced(self):
        self.write("g.json", CHAIN)
        os.mkdir(self.path("mine"))
        self.write("mine/notes.txt", b"mine")
        self.fails(4, "compile", "g.json", "-o", "mine", "--target", "cpu", mentions=["mine"])
        self.assertEqual(os.listdir(self.path("mine")), ["notes.txt"])

    def test_damaged_packages(self):
        self.write("g.json", CHAIN)
        self.ok("compile", "g.json", "-o", "pkg", "--target", "cpu")
        manifest = self.read("pkg/manifest.json")
        self.write("pkg/manifest.json", manifest[: len(manifest) // 2])
        self.fails(2, "run", "pkg", "--inputs", "random", mentions=["manifest.json"])
        self.write("pkg/manifest.json", manifest)
        self.ok("run", "pkg", "--inputs", "random")
        os.unlink(self.path("pkg/kernels.so"))
        self.fails(2, "run", "pkg", "--inputs", "random", mentions=["kernels.so"])

    def test_symbolic_package(self):
        self.write("g.json", SYMBOLIC)
        self.ok("compile", "g.json", "-o", "pkg", "--target", "cpu", "--dim", "B=2")
        T.save(self.path("in.safetensors"), {"x": ("F32", [2, 3], T.f32(*range(6))), "b": ("F32", [3], T.f32(1, 2, 3))})
        self.ok("run", "pkg", "--inputs", "in.safetensors", "--outputs", "o.safetensors")
        self.assertEqual(T.load(self.path("o.safetensors"))["y"][2], T.f32(1, 3, 5, 4, 6, 8))
        T.save(self.path("in.safetensors"), {"x": ("F32", [1, 3], T.f32(*range(3))), "b": ("F32", [3], T.f32(1, 2, 3))})
        self.fails(2, "run", "pkg", "--inputs", "in.safetensors", place="in.safetensors:/x")

    def test_cache(self):
        self.write("g.json", CHAIN)
        args = ["compile", "g.json", "--target", "cpu", "-v", "--cache"]
        self.assertIn("cache: miss", self.ok(*args, self.path("c")).stderr)
        self.assertIn("cache: hit", self.ok(*args, self.path("c")).stderr)
        self.assertIn("cache: off", self.ok(*args, "off").stderr)
        self.assertRegex(self.ok("cache", "show", "--cache", self.path("c")).stdout, r": 1 entry, ")
        self.write("c/notes.txt", "mine")
        self.ok("cache", "clear", "--cache", self.path("c"))
        self.assertRegex(self.ok("cache", "show", "--cache", self.path("c")).stdout, r": 0 entries, ")
        self.assertTrue(os.path.exists(self.path("c/notes.txt")))
        self.assertIn("cache: miss", self.ok(*args, self.path("c")).stderr)

    def test_result_from_the_cache_is_the_same(self):
        self.write("g.json", graph([node("tanh", ["x"])]))
        self.data()
        results = []
        for _ in range(2):
            self.ok("run", "g.json", "--inputs", "in.safetensors", "--outputs", "o.safetensors", "--target", "cpu", "--cache", self.path("c"))
            results.append(T.load(self.path("o.safetensors")))
        self.assertEqual(results[0], results[1])

    def test_explain(self):
        self.write("g.json", CHAIN)
        text = self.ok("explain", "g.json", "--target", "h200").stdout
        self.assertIn("kernel g_0", text)
        record = json.loads(self.ok("explain", "g.json", "--target", "h200", "--format", "json").stdout)
        self.assertEqual(len(record["kernels"]), 1)
        self.assertIn("</html>", self.ok("explain", "g.json", "--target", "cpu", "--format", "html").stdout)
        for form in ("text", "json", "html"):
            self.assertTrue(self.ok("explain", "g.json", "--target", "reference", "--format", form).stdout)

    def test_dump(self):
        self.write("g.json", CHAIN)
        for stage, target, word in (("graph", "cpu", "ridge."), ("fused", "cpu", "ridge.group"), ("kernel", "cpu", "func.func"),
                                    ("llvm", "cpu", "define"), ("ptx", "sm_90a", ".entry"), ("graph", "sm_80", "ridge.")):
            self.assertIn(word, self.ok("dump", "g.json", "--stage", stage, "--target", target).stdout, stage)
        r = self.ok("dump", "g.json", "--dump-dir", "stages", "--target", "sm_80")
        names = sorted(os.listdir(self.path("stages")))
        self.assertEqual(r.stdout, "".join(f"stages/{n}\n" for n in names))
        self.assertEqual([n.split("-")[0] for n in names], sorted(n.split("-")[0] for n in names))
        self.assertIn("00-graph.mlir", names)
        self.assertIn("01-fused.mlir", names)
        self.assertTrue(any(re.match(r"02-kernel-g_0\w*\.mlir$", n) for n in names), names)
        self.assertTrue(any(re.match(r"\d\d-ptx-g_0\w*\.ptx$", n) for n in names), names)
        for n in names:
            self.assertGreater(os.path.getsize(self.path("stages/" + n)), 0)

    def test_no_kernels(self):
        self.write("g.json", graph([], outputs=["x"]))
        self.data()
        self.ok("run", "g.json", "--inputs", "in.safetensors", "--outputs", "o.safetensors", "--target", "cpu")
        self.assertEqual(T.load(self.path("o.safetensors"))["x"][2], T.f32(0, 1, 2, 3, 4, 5))
        self.ok("verify", "g.json", "--target", "cpu")
        for stage in ("graph", "fused", "kernel", "llvm"):
            self.ok("dump", "g.json", "--stage", stage, "--target", "cpu")


class Measuring(Cli):
    def test_verify(self):
        self.write("g.json", graph([node("mul", ["x", "x"], "a"), node("tanh", ["a"], "b"), node("gt", ["b", 0.5], "c")],
                                   inputs={"x": {"dtype": "bf16", "shape": [65, 33]}}, outputs=["b", "c"]))
        r = self.ok("verify", "g.json", "--target", "cpu")
        for word in ("1 fused kernel", "bytes moved", "unfused", "output b: bf16 [65, 33]", "output c: bool", "ok\n"):
            self.assertIn(word, r.stdout)
        self.assertEqual(self.ok("verify", "g.json", "--target", "cpu", "-q").stdout, "")
        self.ok("verify", "g.json", "--target", "reference", "--inputs", "random:5")

    def test_verify_finds_a_difference(self):
        # tanh of the cpu target is within 4 ulp and not the interpreter's own: a tolerance of nothing must find that, or
        # everything is equal to the last bit.
        self.write("g.json", graph([node("exp", ["x"], "a"), node("sin", ["a"], "b"), node("log1p", ["a"])],
                                   inputs={"x": {"dtype": "f32", "shape": [50000]}}, outputs=["b", "y"]))
        self.ok("verify", "g.json", "--target", "cpu")
        r = self.start("verify", "g.json", "--target", "cpu", "--tolerance", "0")
        self.assertEqual(r.returncode, 4, r.stdout)
        self.assertRegex(r.stderr, r"^error: g\.json: output \w is beyond the tolerance .* worst at \[\d+\]: cpu \S+, reference \S+\n$")

    def test_precision(self):
        block = lambda case, **policy: json.loads((SOURCE / "tests/cases" / case / "graph.json").read_text()) | {"precision": policy}
        weights = [p for p, t in block("llama_block")["parameters"].items() if len(t["shape"]) == 2]
        # Small blocks on a CPU: under every mode the error that is measured is within the tolerance.
        for case in ("llama_block", "llama_block_strict_f32", "mlp_mixer_block"):
            for mode in ("bf16", "f16", "fp8", "int8", "auto"):
                self.write("g.json", block(case, mode=mode))
                out = self.ok("verify", "g.json", "--target", "cpu", "--precision", "--cache", "off").stdout
                self.assertRegex(out, r"precision " + mode + r", tolerance 0\.02, estimated error \S+\n")
                self.assertRegex(out, r"output \S+: error \S+ of the interpreter's in f32 .*, within the tolerance of 0\.02\n")
        # Weights in eight bits, converted when they are bound: also out of a package, and within the estimate.
        for dtype in ("f8e4m3", "f8e5m2", "i8"):
            self.write("g.json", block("llama_block", mode="auto", tolerance=0.5, pin={w: dtype for w in weights}))
            out = self.ok("verify", "g.json", "--target", "cpu", "--precision", "--cache", "off").stdout
            measured = float(re.search(r"output y: error (\S+) of", out)[1])
            self.assertTrue(0.003 < measured <= float(re.search(r"estimated error (\S+)", out)[1]), out)
            self.ok("compile", "g.json", "-o", "pkg", "--target", "cpu")
            self.assertIn("bind_launches", json.loads(self.read("pkg/manifest.json")))
            for what, name in (("pkg", "a.safetensors"), ("g.json", "b.safetensors")):
                self.ok("run", what, "--inputs", "random:3", "--outputs", name, "--target", "cpu")
            self.assertEqual(self.read("a.safetensors"), self.read("b.safetensors"))
            self.assertIn("ok", self.ok("verify", "pkg").stdout)
            self.fails(1, "verify", "pkg", "--precision")
        self.ok("bench", "g.json", "--target", "cpu", "--repeat", "2")
        self.ok("run", "g.json", "--inputs", "random", "--target", "reference")
        record = json.loads(self.ok("explain", "g.json", "--target", "cpu", "--format", "json").stdout)
        self.assertEqual(record["precision"]["mode"], "auto")
        self.assertTrue(all("pinned" in d["why"] for d in record["precision"]["decisions"] if d["name"].startswith("linear")), record["precision"])
        self.assertTrue(record["bind_kernels"])
        # Pins go beyond what the tolerance allows, and that is said.
        self.write("g.json", block("llama_block", mode="auto", tolerance=1e-3, pin={w: "f8e5m2" for w in weights}))
        r = self.start("verify", "g.json", "--target", "cpu", "--precision", "-q")
        self.assertEqual(r.returncode, 4, r.stdout)
        self.assertRegex(r.stderr, r"^error: g\.json: output y has an error of \S+, beyond the precision tolerance of 0\.001\n$")
        # Without a policy there is no tolerance, and an error nevertheless.
        self.write("g.json", block("llama_block", mode="keep"))
        self.assertRegex(self.ok("verify", "g.json", "--target", "cpu", "--precision").stdout, r"precision keep\noutput y: error \S+ of [^,]*, root mean square\)\n")

    def test_verify_strict(self):
        self.write("g.json", graph([node("mul", ["x", "x"], "a"), node("add", ["a", "x"], "b"), node("lt", ["b", "x"], "c")],
                                   inputs={"x": {"dtype": "bf16", "shape": [1000]}}, outputs=["b", "c"], numerics="strict"))
        out = self.ok("verify", "g.json", "--target", "cpu").stdout
        self.assertEqual(out.count("(equal)"), 2)
        self.assertEqual(out.count(" 0 of 1000 differ"), 2)

    def test_bench_of_several_launches(self):
        self.write("g.json", graph([node("mul", ["x", 2.0], "a"), node("tanh", ["z"], "b")], outputs=["a", "b", "x"],
                                   inputs={"x": {"dtype": "f32", "shape": [1001]}, "z": {"dtype": "bf16", "shape": [7, 9]}}))
        j = json.loads(self.ok("bench", "g.json", "--target", "cpu", "--repeat", "3", "--json").stdout)
        self.assertEqual(len(j["kernels"]), 3)
        self.assertEqual(sorted(k["bytes"] for k in j["kernels"]), [2 * 2 * 63, 2 * 4 * 1001, 2 * 4 * 1001])
        self.assertEqual(sum(k["bytes"] for k in j["kernels"]), j["total"]["bytes"])
        self.assertTrue(all(k["measured_us"] > 0 for k in j["kernels"]))

    def test_bench(self):
        self.write("g.json", graph([node("mul", ["x", "x"])], inputs={"x": {"dtype": "f32", "shape": [1 << 16]}}))
        out = self.ok("bench", "g.json", "--target", "cpu", "--repeat", "5").stdout
        self.assertIn("g_0", out)
        self.assertIn("median of 5 runs", out)
        j = json.loads(self.ok("bench", "g.json", "--target", "cpu", "--repeat", "5", "--json").stdout)
        self.assertEqual(len(j["kernels"]), 1)
        self.assertEqual(j["kernels"][0]["bytes"], 2 * 4 * (1 << 16))
        for key in ("predicted_us", "measured_us", "bytes_per_second", "of_copy"):
            self.assertGreater(j["kernels"][0][key], 0)
        self.assertGreater(j["copy_bytes_per_second"], 1e8)
        self.ok("bench", "g.json", "--target", "reference", "--repeat", "2")


if __name__ == "__main__":
    unittest.main()
