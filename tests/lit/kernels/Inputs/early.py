# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Looks at a package's kernels that are launched while the one before them runs. On every way through them: before griddepcontrol.wait
# nothing is written, and nothing is read that a kernel of the plan writes, which is not read by way of the read-only path either; and
# no kernel ends without the wait. Tensors that one launch touches lie apart. usage: early.py PACKAGE
import json
import re
import sys

folder = sys.argv[1]
manifest = json.load(open(f"{folder}/manifest.json"))
ptx = open(f"{folder}/kernels.ptx").read()
buffers = manifest["buffers"]
written = {i for i, b in enumerate(buffers) if b["kind"] in ("arena", "output")}
mistakes = []
waits = reads_ahead = 0


def entries(text):
    for part in text.split(".entry ")[1:]:
        name, rest = part.split("(", 1)
        yield name, rest


def origins(lines):
    """Of each register: the parameters that it is computed from. What a load gives comes from nowhere."""
    out = {}
    changed = True
    while changed:
        changed = False
        for line in lines:
            param = re.match(r"ld\.param\S*\s+(%\w+), \[\w+_param_(\d+)\]", line)
            if param:
                to, found = param[1], {int(param[2])}
            elif re.match(r"(@\S+\s+)?(ld|st|atom|setp|bra|call|cp|mbarrier)\b", line) or not re.match(r"\w", line):
                continue
            else:
                registers = re.findall(r"%rd\d+|\w+_param_\d+", line)
                if len(registers) < 2:
                    continue
                to, found = registers[0], set()
                for r in registers[1:]:
                    found |= {int(r.rsplit("_", 1)[1])} if "_param_" in r else out.get(r, set())
            if not found <= out.get(to, set()):
                out[to] = out.get(to, set()) | found
                changed = True
    return out


def waited(lines):
    """Of each line: whether all ways to it have waited."""
    labels = {m[1]: i for i, line in enumerate(lines) if (m := re.match(r"(\$?\w+):", line))}
    state = [None] * (len(lines) + 1)
    work = [(0, False)]
    while work:
        at, has = work.pop()
        while at < len(lines):
            if state[at] is not None and (state[at] == has or not state[at]):
                break
            state[at] = has if state[at] is None else state[at] and has
            has = state[at]
            line = lines[at]
            has = has or "griddepcontrol.wait" in line
            jump = re.match(r"(@\S+\s+)?bra(\.uni)?\s+(\$?\w+);", line)
            if jump:
                work.append((labels[jump[3]], has))
                if not jump[1]:
                    break
            if re.match(r"ret;", line):
                break
            at += 1
    return state


def look(name, body, launch):
    global waits, reads_ahead
    args, maps = launch["args"], [m["arg"] for m in launch.get("tensor_maps", [])]
    # Labels within inline assembly are known there alone.
    lines = [line.strip() for line in re.sub(r"\{\s*\.reg \.pred ended;.*?ENDED:\s*\}", "", body, flags=re.S).split("\n")]
    origin, state = origins(lines), waited(lines)
    waits += sum("griddepcontrol.wait" in line for line in lines)
    for line, has in zip(lines, state):
        if has is None:
            continue
        if line == "ret;" and not has:
            mistakes.append(f"{name} may end without a wait")
        access = re.search(r"(ld\.global\S*|st\.global\S*|atom\S*|red\.global\S*|prefetch\.global\S*|cp\.async\S*)\s", line)
        if not access or re.match(r"cp\.async\S*\.(commit|wait)_group|cp\.async\.wait_all", access[1]):
            continue
        what, addresses = access[1], re.findall(r"\[(%rd\d+)", line)
        read = set().union(*(origin.get(r, set()) for r in addresses))
        # A tensor map is a parameter behind the pointers.
        read = {maps[p - len(args)] if p >= len(args) else p for p in read}
        bad = {p for p in read if args[p] in written}
        is_read = "ld.global" in what or "prefetch" in what or ("cp.async" in what and "global.shared" not in what)
        if not has and not is_read:
            mistakes.append(f"{name} writes before it waits: {line}")
        if not has and (bad or not read):
            mistakes.append(f"{name} reads what the plan writes before it waits: {line}")
        if ".nc" in what and (bad or not read):
            mistakes.append(f"{name} takes for read-only what the plan writes: {line}")
        reads_ahead += not has and not bad


for launch in manifest["launches"]:
    if launch["kind"] != "kernel":
        continue
    if launch.get("early"):
        for name, body in entries(ptx):
            if name in (launch["kernel"], launch.get("unaligned", {}).get("kernel")):
                look(name, body, launch)
    touched = (buffers[a] for a in sorted(set(launch["args"])))
    arena = sorted((b["offset"], b["offset"] + b["bytes"]) for b in touched if b["kind"] == "arena")
    if any(a[1] > b[0] for a, b in zip(arena, arena[1:])):
        mistakes.append(f"{launch['kernel']} has tensors that lie in one place")
early = sum(bool(launch.get("early")) for launch in manifest["launches"])
print(f"{early} of {len(manifest['launches'])} launched early, {waits} waits, {reads_ahead} accesses ahead of them, {len(mistakes)} mistakes")
for m in mistakes[:20]:
    print(m)
sys.exit(bool(mistakes))
