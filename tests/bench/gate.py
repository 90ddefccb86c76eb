#!/usr/bin/env python3
"""Measures how well `perfx diff --profile A… --vs B…` tells changes from noise, on real runs of gate.c: of PAIRS pairs
of RUNS runs a side, how many are said to have changed if nothing did, if one function of about a tenth of the time became
ONE % slower, and if all did by 10 %.

usage: gate.py [--pairs 20] [--runs 5] [--frequency 20000] [--samples 5000] [--one 17] [--kinds equal,one,all] [--keep DIR] PERFX

Runs of all kinds take turns, so that what else happens on the machine meets all alike. The first side is the same runs
in the three comparisons of a pair. A run takes about SAMPLES/FREQUENCY seconds of CPU. Exits with 1 if more than one of 20
equal pairs, or fewer than 18 of 20 of the others, are said to have changed.
"""
import argparse, collections, json, os, subprocess, sys, tempfile, time

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument("perfx")
for option, default in (("pairs", 20), ("runs", 5), ("frequency", 20000), ("samples", 5000), ("one", 17)):
    parser.add_argument("--" + option, type=int, default=default)
parser.add_argument("--kinds", default="equal,one,all")
parser.add_argument("--keep")
args = parser.parse_args()
folder = args.keep or tempfile.mkdtemp(prefix="perfx-gate-")
os.makedirs(folder, exist_ok=True)
KINDS = {"before": [], "equal": [], "one": [f"-DONE={100 + args.one}"], "all": ["-DALL=110"]}
compared = args.kinds.split(",")
KINDS = {kind: KINDS[kind] for kind in ["before", *compared]}


def build(scale):
    for kind, defines in KINDS.items():
        os.makedirs(f"{folder}/{kind}", exist_ok=True)
        source = os.path.join(here, "gate.c")
        subprocess.run(["gcc", "-O1", f"-DSCALE={scale}", *defines, "-o", f"{folder}/{kind}/work", source], check=True)


def record(kind, number):
    path = f"{folder}/{kind}-{number}.data"
    event = ["-e", "cpu-clock:u", "-F", str(args.frequency), "-m", "4M"]
    subprocess.run(["perf", "record", "-q", "-B", *event, "-o", path, f"{folder}/{kind}/work"], check=True)
    return path


def samples(path):
    listed = subprocess.run([args.perfx, "list", "-q", "events", "--json", path], stdout=subprocess.PIPE, check=True)
    return json.loads(listed.stdout)["rows"][0]["samples"]


# As many rounds as give the samples. The time that the program takes alone does not tell it: being sampled takes time.
scale = 1000
for number in range(3):
    build(scale)
    scale = max(1, scale * args.samples // max(1, samples(record("before", number))))
build(scale)
started = time.time()
runs = {kind: [] for kind in KINDS}
for number in range(args.pairs * args.runs):
    for kind in KINDS:
        runs[kind].append(record(kind, number))
print(f"recorded {len(KINDS) * args.pairs * args.runs} runs in {time.time() - started:.0f} s")

wrong = False
for kind in compared:
    said = collections.Counter()
    hash_share, mean = [], 0
    for pair in range(args.pairs):
        a, b = ([runs[k][pair * args.runs + n] for n in range(args.runs)] for k in ("before", kind))
        command = [args.perfx, "diff", "-q", "--profile", "--json", "--threshold", "0%", *a, "--vs", *b]
        ran = subprocess.run(command, stdout=subprocess.PIPE)
        found = json.loads(ran.stdout)
        if ran.returncode not in (0, 4) or (ran.returncode == 4) != found["changed"]:
            sys.exit(f"exit code {ran.returncode}")
        said["changed"] += found["changed"]
        said["the total"] += found["all"]["beyond_noise"]
        for function in found["functions"]:
            said[function["function"]] += function["change"]["beyond_noise"]
            if function["function"] == "hash":
                hash_share.append(function["change"]["share_a"])
        mean += found["a"]["samples"] / args.runs / args.pairs
    print(f"{kind:6}: {said['changed']:2} of {args.pairs} pairs changed; {mean:.0f} samples a run, hash", end=" ")
    print(f"{sum(hash_share) / max(1, len(hash_share)):.1f}%;", {name: n for name, n in said.items() if n and name != "changed"})
    allowed = said["changed"] * 20 <= args.pairs if kind == "equal" else said["changed"] * 20 >= 18 * args.pairs
    wrong = wrong or not allowed
sys.exit(wrong)
