#!/usr/bin/env python3
"""hybrid.py FILE: makes two clocks named `cpu_core_cycles_` and `cpu_atom_cycles_` the cycles of a hybrid processor's cores."""
import struct
import sys

# The types of the PMUs; of PERF_TYPE_HARDWARE, they are the upper half of `config`, and 0 below it is cycles.
PMUS = {b"cpu_core": 4, b"cpu_atom": 10}

with open(sys.argv[1], "r+b") as f:
    data = bytearray(f.read())
    entry, start, size = struct.unpack_from("<3Q", data, 16)
    assert size == entry * len(PMUS)
    for at, pmu in zip(range(start, start + size, entry), PMUS.values()):
        struct.pack_into("<I", data, at, 0)
        struct.pack_into("<Q", data, at + 8, pmu << 32)
    for pmu in PMUS:
        assert pmu + b"_cycles_" in data
        data = data.replace(pmu + b"_cycles_", pmu + b"/cycles/")
    f.seek(0)
    f.write(data)
