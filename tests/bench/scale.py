#!/usr/bin/env python3
"""Measures commands on recordings of 1, 5 and N times plain.data, and prints a Markdown table of seconds per GB.

usage: scale.py [N] [DIR]      (N: 15, which takes 35 GB of disk; DIR of record.sh: /tmp/perfx-data/big)

The larger ones hold the records of plain.data several times, each time 10 s later. Each command runs once on each, with
all that was written before on disk. Private memory is the peak for the largest one.
"""
import os, struct, subprocess, sys, time

from peak import peak

times = int(sys.argv[1]) if len(sys.argv) > 1 else 15
folder = sys.argv[2] if len(sys.argv) > 2 else "/tmp/perfx-data/big"
perfx = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../target/dist/perfx")
plain, whole, later, out = (os.path.join(folder, name) for name in ["plain.data", "scale.data", "later.data", "out"])


def section(file, at):
    """Offset and size of the section whose place is in the header at this offset."""
    file.seek(at)
    return struct.unpack("<QQ", file.read(16))


def make(count):
    with open(plain, "rb") as file:
        start, size = section(file, 40)
        file.seek(0)
        front = bytearray(file.read(start))
        file.seek(start + size)
        tail = bytearray(file.read())
    struct.pack_into("<Q", front, 48, size * count)
    for feature in range(sum(bin(byte).count("1") for byte in front[72:104])):
        place, = struct.unpack_from("<Q", tail, 16 * feature)
        struct.pack_into("<Q", tail, 16 * feature, place + size * (count - 1))
    with open(whole, "wb") as file:
        file.write(front)
        for number in range(count):
            if number > 0:
                shift = ["--offset", str(number * 10**10)]
                subprocess.run([perfx, "retime", "-q", "-f", *shift, plain, "-o", later], check=True)
            with open(later if number > 0 else plain, "rb") as part:
                start, size = section(part, 40)
                part.seek(start)
                while size > 0:
                    size -= file.write(part.read(min(size, 1 << 24)))
        file.write(tail)
    if count > 1:
        os.unlink(later)


def run(command):
    """Seconds, and the peak of private memory in MiB."""
    subprocess.run(["sync"], check=True)
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    memory = peak(process)
    seconds = time.monotonic() - start
    if process.returncode not in (0, 3):
        sys.exit(f"{command} failed")
    if os.path.exists(out):
        os.unlink(out)
    return seconds, memory


write = lambda *command: [perfx, *command, whole, "-q", "-o", out]
COMMANDS = {
    "cp": ["cp", whole, out],
    "copy": write("copy"),
    "inject -b": write("inject", "-b"),
    "filter --time 50%-51%": write("filter", "--time", "50%-51%"),
    "sort": write("sort"),
    "compress": write("compress"),
    "export folded": write("export", "folded"),
    "stats": [perfx, "stats", "-q", whole],
    "doctor": [perfx, "doctor", "-q", whole],
    "dump": [perfx, "dump", "-q", whole],
    "index": [perfx, "index", "-q", whole],
}
found, sizes, memory = {}, [], {}
for count in [1, 5, times]:
    make(count)
    sizes.append(os.path.getsize(whole) / 1e9)
    for label, command in COMMANDS.items():
        seconds, memory[label] = run(command)
        found[label, count] = seconds / sizes[-1]
        print(f"{sizes[-1]:.1f} GB: {label} {seconds:.2f} s", file=sys.stderr, flush=True)
    for path in [whole, whole + ".pfi"]:
        os.unlink(path)
heads = [f"{size:.1f} GB" for size in sizes]
print(f"| work, seconds per GB | {' | '.join(heads)} | private memory |\n|---|---|---|---|---|")
for label in COMMANDS:
    cells = [f"{found[label, count]:.2f}" for count in [1, 5, times]]
    print(f"| `{label}` | {' | '.join(cells)} | {memory[label]:.0f} MiB |")
