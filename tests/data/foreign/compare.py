#!/usr/bin/env python3
"""compare.py SET...: perfx on whole sets of recordings of other machines, sample by sample against perf.

A SET is a folder with rec/NAME.data, what the recording machine's own perf script showed of it (rec/NAME.script, with
--no-inline), the files of that machine (root, with proc/kallsyms) and a build-id cache (debug). PERFX and PERF are the
programs to compare (target/debug/perfx, perf-new). The frames of `perfx view` are compared with those of both perfs:
symbols, offsets and files. The lines of `perfx export folded` are compared with those that the text of view, and of
both perfs, become. Differences that neither perf explains are listed by kind.
"""

import collections
import os
import re
import subprocess
import sys
from pathlib import Path

PERFX = os.environ.get("PERFX", "target/debug/perfx")
PERF = os.environ.get("PERF", "perf-new")
HEAD = re.compile(r"^\s*(\S.*?)\s+(\d+)\s+(?:\[\d+\]\s+)?([\d.]+):\s+(?:(\d+)\s+)?(\S+):\s*(.*)$")
FRAME = re.compile(r"(?:^|\s)[0-9a-f]+ (.+) \((.*)\)$")
Sample = collections.namedtuple("Sample", "comm period event frames")


def output(*command, stdin=None):
    ran = subprocess.run([str(word) for word in command], stdin=stdin or subprocess.DEVNULL, capture_output=True)
    return ran.stdout.decode("utf8", "replace"), ran.stderr.decode("utf8", "replace")


def samples(text):
    """The samples of a text of perf script, by time, thread and event, numbered if they have these in common."""
    found, current = {}, None
    for line in text.split("\n"):
        if "PERF_RECORD_" in line or not line.strip():
            current = None
        elif current and line[0] in "\t " and (frame := FRAME.match(line.strip())):
            # Without the address: perf 6.1 shows that in the file.
            current.frames.append((frame[1], frame[2]))
        elif head := HEAD.match(line):
            comm, thread, time, period, event, rest = head.groups()
            current = Sample(comm, int(period or 0), event, [])
            if frame := FRAME.search(rest):
                current.frames.append((frame[1], frame[2]))
            number = 0
            while (key := (time, thread, event, number)) in found:
                number += 1
            found[key] = current
    return found


def without_arguments(name):
    """A name up to its arguments, by the rules of inferno."""
    depth = 0
    for at, letter in enumerate(name):
        is_of_name = name[at:].startswith("(anonymous namespace)") or name[:at].endswith(".")
        if letter == "(" and depth == 0 and not is_of_name:
            return name[:at]
        depth += (letter in "(<{[") - (letter in ")>}]")
    return name


def folded(found, event):
    """What the samples of an event become as the lines of stackcollapse-perf.pl."""
    lines = collections.Counter()
    for sample in found.values():
        if sample.event != event:
            continue
        stack = []
        for symbol, dso in sample.frames:
            name = re.sub(r"\+0x[0-9a-f]+$", "", symbol)
            if name == "[unknown]" and dso != "[unknown]":
                name = f"[{dso.rsplit('/', 1)[-1]}]"
            stack.append(without_arguments(name.replace(";", ":")))
        lines[";".join([sample.comm.replace(" ", "_"), *reversed(stack)])] += max(sample.period, 1)
    return lines


def kind(ours, theirs):
    """How the frames of a sample differ from those of a perf."""
    if theirs is None:
        return "no sample"
    same = next((at for at, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), min(len(ours), len(theirs)))
    if same == len(theirs):
        return "fewer frames"
    if same == len(ours):
        return "more frames"
    return "another name" if theirs[same][1] == ours[same][1] else "another file"


def compare(folder, recording):
    """Prints a line about a recording, and returns the numbers in it."""
    root, kallsyms = folder / "root", folder / "root/proc/kallsyms"
    name = recording.stem
    guest = samples(recording.with_suffix(".script").read_text(errors="replace"))
    script = ["script", "--no-inline", "--symfs", root, "--kallsyms", kallsyms, "-i"]
    if "pipe" in name:
        with recording.open() as pipe:
            perf = samples(output(PERF, *script, "-", stdin=pipe)[0])
    else:
        perf = samples(output(PERF, *script, recording)[0])
    places = ["--no-inline", "--root", root, "--buildid-dir", folder / "debug", "--kallsyms", kallsyms]
    ours = samples(output(PERFX, "view", *places, recording)[0])
    counts = collections.Counter(samples=len(ours))
    for key, sample in ours.items():
        theirs = [by[key].frames if key in by else None for by in (guest, perf)]
        if sample.frames not in theirs:
            counts["differ"] += 1
            counts[f"own perf {kind(sample.frames, theirs[0])}, {PERF} {kind(sample.frames, theirs[1])}"] += 1
    text, said = output(PERFX, "export", "folded", *places, recording, "-o", "-")
    event = re.search(r"^perfx: (\S+): .*, counted by", said, re.MULTILINE)
    # The line of a tracepoint's sample has its fields, and no address.
    if event and not event[1].startswith(("sched:", "syscalls:")):
        pairs = (line.rsplit(" ", 1) for line in text.splitlines())
        lines = {stack: int(count) for stack, count in pairs}
        shown = [folded(by, event[1]) for by in (ours, guest, perf)]
        counts["lines"] = len(lines)
        counts["lines of another count than in view"] = sum(shown[0][line] != n for line, n in lines.items())
        counts["lines of another count than in both perfs"] = sum(
            n not in (shown[1][line], shown[2][line]) for line, n in lines.items()
        )
    print(f"{folder.name}/{name}: " + ", ".join(f"{what} {count}" for what, count in counts.items()), flush=True)
    return counts


def main():
    for folder in map(Path, sys.argv[1:]):
        total = collections.Counter()
        for recording in sorted(folder.glob("rec/*.data")):
            if recording.is_file() and recording.with_suffix(".script").is_file():
                total += compare(folder, recording)
        print(f"{folder}: " + ", ".join(f"{what} {count}" for what, count in total.most_common()))


main()
