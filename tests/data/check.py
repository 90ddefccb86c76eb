#!/usr/bin/env python3
"""check.py [NAME-PART]: reads every file here with perf 6.1 and 7.3; writes the results to VERDICTS.tsv.

Run craft.py afterwards: README.md shows the verdicts.
"""
import os
import re
import resource
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
PERFS = ("perf", "perf-new")
FATAL = (4, 5, 6, 7, 8, 9, 11)
part = sys.argv[1] if len(sys.argv) > 1 else ""


def limits():
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))


def ask(perf, path, options=("-D",)):
    environment = {"PATH": os.environ["PATH"], "HOME": "/tmp/perfx-data/home", "LC_ALL": "C", "PAGER": "cat"}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            # a recorded pipe is given to perf as a pipe
            given = None
            if os.path.isfile(path):
                with open(path, "rb") as f:
                    given = f.read()
                if given[8:16] not in (b"\x10" + bytes(7), bytes(7) + b"\x10"):
                    given = None
            code = subprocess.run([perf, "script", *options, "-f", "-i", path if given is None else "-"], stdout=out, stderr=err,
                                  timeout=20, env=environment, preexec_fn=limits, input=given or b"").returncode
        except subprocess.TimeoutExpired:
            return "crash (20 s)"
        out.seek(0)
        err.seek(0)
        count = sum(1 for line in out if (b" PERF_RECORD_" if options == ("-D",) else b"branches") in line)
        lines = [x.strip() for x in err.read().decode(errors="replace").splitlines() if x.strip() not in ("", "Warning:")]
    if -code in FATAL or code - 128 in FATAL:
        return f"{count}, then crash (signal {code - 128 if code > 0 else -code})"
    if code:  # what made it give up, not what it only remarked
        lines = [x for x in lines if re.search("fail|rror|abort|corrupt|an't|mismatch|nvalid|exceed|past|found|nknown", x)] or lines
        lines = [x for x in lines if not x.startswith("WARNING")] or lines
    trouble = re.sub(r"[^\x20-\x7e]", "?", lines[0].replace(path, "FILE"))[:90] if lines else ""
    if "incompatible file format" in trouble:
        return "refused"
    if code:
        return f"{count}, then: {trouble or 'failed'}" if count else trouble or "failed"
    return f"{count} ({trouble})" if trouble else str(count)


out = {}
verdicts = os.path.join(here, "VERDICTS.tsv")
if part and os.path.exists(verdicts):
    with open(verdicts, encoding="utf-8") as f:
        out = dict(line.rstrip("\n").split("\t", 1) for line in f)
for folder in ("recorded", "crafted"):
    for name in sorted(os.listdir(os.path.join(here, folder))):
        if name.endswith(".tsv") or part not in name:
            continue
        path = os.path.join(here, folder, name)
        if os.path.isdir(path) and not os.path.exists(os.path.join(path, "data")) and name != "dir-no-data.data":
            path = os.path.join(path, "1.data")
        # perf uses the index of AUX records only when it decodes the trace
        options = ("--itrace=b", "-F", "ip,event") if name.startswith("aux-index") or re.match("aux-[bl]e", name) else ("-D",)
        out[f"{folder}/{name}"] = "\t".join(ask(perf, path, options) for perf in PERFS)
present = [k for k in out if os.path.exists(os.path.join(here, k))]
with open(verdicts, "w", encoding="utf-8") as f:
    for k in sorted(present):
        f.write(f"{k}\t{out[k]}\n")
print(f"check.py: {len(present)} files")
