# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""safetensors files with Python's standard library alone, for the tests of the command line."""
import array
import json
import math
import struct

SIZE = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I8": 1, "U8": 1, "I32": 4, "I64": 8, "BOOL": 1}
CODE = {"F32": "f", "I8": "b", "U8": "B", "I32": "i", "I64": "q", "BOOL": "B"}


def save(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}."""
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        assert len(raw) == SIZE[dtype] * math.prod(shape), name
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def load(path):
    """{name: (dtype, shape, bytes)}."""
    with open(path, "rb") as f:
        raw = f.read()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    data = raw[8 + length :]
    return {n: (h["dtype"], h["shape"], data[h["data_offsets"][0] : h["data_offsets"][1]]) for n, h in header.items()}


def bf16(*values):
    """The upper halves of f32: rounded toward zero."""
    return b"".join(struct.pack("<f", v)[2:] for v in values)


def f32(*values):
    return struct.pack(f"<{len(values)}f", *values)


def i64(*values):
    return struct.pack(f"<{len(values)}q", *values)


def values(dtype, raw):
    """Numbers; of f8 the codes."""
    if dtype == "BF16":
        widened = array.array("I", (v << 16 for v in array.array("H", raw)))
        return list(array.array("f", widened.tobytes()))
    if dtype == "F16":
        return [v[0] for v in struct.iter_unpack("<e", raw)]
    return list(array.array(CODE.get(dtype, "B"), raw))


def _ordinals(raw):
    return [-(v & 0x7FFF) if v & 0x8000 else v for v in array.array("H", raw)]


def _is_nan8(dtype, code):
    if dtype == "F8_E8M0":
        return code == 255
    return code & 0x7F == 0x7F if dtype == "F8_E4M3" else code & 0x7F > 0x7C


def difference(got, want, relative=1e-5, of_greatest=1e-6, exact=False):
    """None, or what differs, by the rules of tests/cases/README.md."""
    if got[0] != want[0] or list(got[1]) != list(want[1]):
        return f"{got[0]} {got[1]}, expected {want[0]} {want[1]}"
    dtype = got[0]
    g, w = values(dtype, got[2]), values(dtype, want[2])
    if len(g) != len(w):
        return f"{len(g)} elements, expected {len(w)}"
    if dtype in ("F32", "F16", "BF16"):
        greatest = max((abs(v) for v in w if math.isfinite(v)), default=0)
        steps = list(zip(_ordinals(got[2]), _ordinals(want[2]))) if dtype != "F32" else None
        for i, (a, b) in enumerate(zip(g, w)):
            if math.isnan(a) or math.isnan(b):
                same = math.isnan(a) and math.isnan(b)
            elif exact or math.isinf(a) or math.isinf(b):
                same = a == b
            elif steps:
                same = abs(steps[i][0] - steps[i][1]) <= 2
            else:
                same = abs(a - b) <= relative * abs(b) + of_greatest * greatest
            if not same:
                return f"element {i}: {a}, expected {b}"
        return None
    for i, (a, b) in enumerate(zip(g, w)):
        if a != b and not (dtype.startswith("F8") and _is_nan8(dtype, a) and _is_nan8(dtype, b)):
            return f"element {i}: {a}, expected {b}"
    return None
