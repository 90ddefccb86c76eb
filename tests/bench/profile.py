#!/usr/bin/env python3
"""Shows where the time of each command goes, as a tree of its functions with their shares, like a flame graph.

usage: profile.py [--write] [--only REGEX] [DIR]      (DIR of record.sh: /tmp/perfx-data/big)

perf records the user stacks of each command, perfx converts them to call chains and makes folded lines of them, and this
adds these up. What the kernel does is shown as what was asked of it. A function with less than 3 % of the time is left
out, and so is one that does nothing but call another. perfx must have symbols:

  CARGO_PROFILE_DIST_STRIP=false CARGO_PROFILE_DIST_DEBUG=line-tables-only cargo build --profile dist

--write puts the trees into docs/benchmarks.md.
"""
import argparse, os, re, subprocess, sys, tempfile

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument("dir", nargs="?", default="/tmp/perfx-data/big")
parser.add_argument("--only", default="")
parser.add_argument("--write", action="store_true")
args = parser.parse_args()
perfx = os.path.realpath(os.path.join(here, "../../target/dist/perfx"))
page = os.path.join(here, "../../docs/benchmarks.md")
begin, end = "<!-- tests/bench/profile.py --write begins here -->", "<!-- and the profiles end here -->"
plain, chains = (os.path.join(args.dir, name + ".data") for name in ["plain", "chains"])
LEAST = 0.03

COMMANDS = [
    ("copy of plain", ["copy", plain, "-o", "OUT"]),
    ("inject -b of plain", ["inject", "-b", plain, "-o", "OUT"]),
    ("inject -b of chains", ["inject", "-b", chains, "-o", "OUT"]),
    ("filter --time 25%-75% of plain", ["filter", "--time", "25%-75%", plain, "-o", "OUT"]),
    ("split of plain into 1000 parts", ["split", "--samples", "10800", plain, "-o", "OUT.parts/"]),
    ("sort of plain", ["sort", plain, "-o", "OUT"]),
    ("join of plain and chains", ["join", "--mix", plain, chains, "-o", "OUT"]),
    ("reindex of plain", ["reindex", plain, "-o", "OUT"]),
    ("compress of plain", ["compress", plain, "-o", "OUT"]),
    ("stats of plain", ["stats", plain]),
    ("doctor of plain", ["doctor", plain]),
    ("dump of plain", ["dump", plain]),
    ("export folded of chains", ["export", "folded", chains, "-o", "OUT"]),
]


def called(frame):
    """A function's name without types, hashes and all but its module; None for one of Rust's own libraries."""
    frame = frame.replace("->", "")
    while inner := re.search(r"(::)?<([^<>]*)>", frame):
        kept = inner[2].split(" as ")[0] if " as " in inner[2] else ""
        frame = frame[:inner.start()] + kept + frame[inner.end():]
    frame = frame.split("<")[0]
    parts = [part for part in frame.split("::") if not part.startswith("{")]
    of_rust = {"core", "std", "alloc", "hashbrown", "crossbeam_channel", "_start", "main", "clone3", "call_once"}
    if not parts or parts[0].strip("&( ") in of_rust or parts[0].startswith(("__libc_start", "start_thread", "__rust")):
        return None
    return "::".join(parts[-3:])


ENTRY = r"(entry_SYSCALL|do_syscall_64|x64_sys_call|asm_|ret_from_fork|exc_|sysvec_|error_entry)"


def stack(frames):
    """The functions of a folded line, outermost first, and what was asked of the kernel."""
    shown = []
    for at, frame in enumerate(frames):
        if frame.endswith("_[k]"):
            inside = (frame for frame in frames[at:] if not re.match(ENTRY, frame))
            asked = re.sub(r"^(__x64_sys_|ksys_)|_\[k\]$", "", next(inside, frame))
            return shown + ["the kernel: " + asked]
        name = called(frame)
        if name and shown[-1:] != [name]:
            shown.append(name)
    return shown


def tree(lines):
    """The tree of all stacks: a function's samples, and the functions that it calls."""
    root = [0, {}]
    for line in lines:
        frames, count = line.rsplit(" ", 1)
        node = root
        node[0] += int(count)
        for name in stack(frames.split(";")[1:]):
            node = node[1].setdefault(name, [0, {}])
            node[0] += int(count)
    return root


def show(node, whole, depth, lines):
    for name, child in sorted(node[1].items(), key=lambda item: (-item[1][0], item[0])):
        share = child[0] / whole
        if share < LEAST:
            continue
        # A function that only calls another one is left out.
        only = max(child[1].values(), key=lambda callee: callee[0], default=None)
        if only and only[0] > 0.97 * child[0]:
            show(child, whole, depth, lines)
            continue
        lines.append(f"{share:5.0%} {'  ' * depth}{name}"[:110])
        show(child, whole, depth + 1, lines)


def profile(command):
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        path = lambda name: os.path.join(folder, name)
        command = [perfx] + [part.replace("OUT", path("out")) for part in command]
        record = ["perf", "record", "-q", "-F", "997", "--call-graph", "dwarf,16384", "-o", path("stacks")]
        subprocess.run(record + ["--", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Exit code 3: the stack of a sample is missing.
        convert = [perfx, "inject", "-q", "--convert-callchain", path("stacks"), "-o", path("chains")]
        subprocess.run(convert, stderr=subprocess.DEVNULL)
        folded = [perfx, "export", "folded", "-q", "--kernel", path("chains")]
        folded = subprocess.run(folded, check=True, stdout=subprocess.PIPE, text=True)
    return folded.stdout.splitlines()


text = []
for label, command in COMMANDS:
    if re.search(args.only, label):
        root, lines = tree(profile(command)), []
        show(root, root[0] or 1, 0, lines)
        text += ["", f"`{label}`:", "", "```text", *lines, "```"]
        print("\n".join(text[-len(lines) - 4:]), flush=True)
if args.write:
    with open(page) as file:
        front, rest = file.read().split(begin)
    with open(page, "w") as file:
        file.write("\n".join([front + begin, *text, "", end + rest.split(end)[1]]))
