#!/usr/bin/env python3
"""A program with generated code: writes a jitdump of N functions (default 200,000) and runs some of them for a second.

usage: perf record -k 1 -e cpu-clock -o DIR/jit.data jit.py DIR [N]

`perf inject --jit` writes one file for each function into DIR, so DIR should be an empty one.
"""
import ctypes, os, struct, sys, time

folder, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200_000
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
# mov rcx, rdi; dec rcx; jnz to the dec; ret; and padding
code = bytes.fromhex("4889f9" "48ffc9" "75fb" "c3").ljust(64, b"\x90")
# read, write, execute; private, anonymous
area = libc.mmap(None, len(code) * count, 7, 0x22, -1, 0)
ctypes.memmove(area, code * count, len(code) * count)
pid, now = os.getpid(), lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC)
with open(f"{folder}/jit-{pid}.dump", "w+b") as dump:
    dump.write(struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, pid, now(), 0))
    dump.flush()
    libc.mmap(None, 4096, 5, 2, dump.fileno(), 0)
    for index in range(count):
        name, address = b"JS:~function_%d /srv/app/lib/module_%d.js:%d:7\0" % (index, index % 97, index % 1009), area + len(code) * index
        dump.write(struct.pack("<IIQIIQQQQ", 0, 56 + len(name) + len(code), now(), pid, pid, address, address, len(code), index))
        dump.write(name + code)
end, at = time.monotonic() + 1, 0
while time.monotonic() < end:
    ctypes.CFUNCTYPE(None, ctypes.c_long)(area + len(code) * at)(100_000)
    at = (at + 7919) % count
