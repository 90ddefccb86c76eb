#!/usr/bin/env python3
"""no_machine.py RELEASE BUILD_ID FILE...: replaces the kernel release and build-id in these files with values that no machine has.

With it, neither perf nor perfx takes the kernel under a test, nor its /proc/kallsyms, for the one that was recorded.
"""
import sys

release, build_id = sys.argv[1].encode(), bytes.fromhex(sys.argv[2])
made_up_id = bytes.fromhex("c000000000000000000000000000000000000001")
made_up_release = (release.split(b"-")[0] + b"-perfx-").ljust(len(release), b"0")
assert len(made_up_id) == len(build_id) and len(made_up_release) == len(release)
for path in sys.argv[3:]:
    with open(path, "rb") as file:
        real = file.read()
    made_up = real.replace(build_id, made_up_id).replace(release, made_up_release)
    if made_up != real:
        with open(path, "wb") as file:
            file.write(made_up)
