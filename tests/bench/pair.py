#!/usr/bin/env python3
"""Makes host.data and guest.data in DIR: repeats the pair of tests/data/guests, some seconds later each time, until the
host's recording has SIZE MB.

usage: pair.py [--size SIZE] DIR      (1000; the guest's recording is a fifth of that)

The initial records of both are not repeated. Of the host's other records, those from the time of the guest's recording
are repeated, so that both recordings cover the same time. Each repetition takes a little longer; otherwise several
offsets of the guest would fit equally well.
"""
import argparse, array, os, struct, subprocess

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument("dir")
parser.add_argument("--size", type=int, default=1000)
args = parser.parse_args()

# The times of guest and host are perf's, from TSC cycles; tests/it/merge.rs determines offset and scale.
OFFSET, SCALE = -14026330256359, 2.5961349024293154
IP, TID, TIME, ADDR, ID, STREAM_ID, CPU, IDENTIFIER = (1 << bit for bit in (0, 1, 2, 3, 6, 9, 7, 16))
TIME_CONV, FINISHED_ROUND, SAMPLE = 79, 68, 9
GAP = 500_000_000


class Recording:
    def __init__(self, name):
        packed = os.path.join(here, "../data/guests", name + ".zst")
        self.bytes = subprocess.run(["zstd", "-dc", packed], check=True, stdout=subprocess.PIPE).stdout
        attr_size, attrs, _, self.at, self.size = struct.unpack_from("<16xQQQQQ", self.bytes)
        (self.sample_type,) = struct.unpack_from("<Q", self.bytes, attrs + 24)
        self.records, at = [], self.at
        while at < self.at + self.size:
            kind, _, size = struct.unpack_from("<IHH", self.bytes, at)
            self.records.append((kind, at, size))
            at += size
        self.conv = next((struct.unpack_from("<QQQ", self.bytes, at + 8) for kind, at, _ in self.records if kind == TIME_CONV), None)

    def time_at(self, kind, at, size):
        """The offset of a record's time; None if it has none."""
        has = lambda *fields: 8 * sum(bool(self.sample_type & field) for field in fields)
        if kind >= 64:
            return None
        return at + 8 + has(IDENTIFIER, IP, TID) if kind == SAMPLE else at + size - has(TIME, ID, STREAM_ID, CPU, IDENTIFIER)

    def time(self, record):
        at = self.time_at(*record)
        return struct.unpack_from("<Q", self.bytes, at)[0] if at else 0

    def host_time(self, time):
        shift, mult, zero = self.conv
        return ((((time - zero) % 2**64) << shift) // mult - OFFSET) / SCALE

    def guest_span(self, ns):
        """Converts ns of the host to this guest's clock."""
        shift, mult, _ = self.conv
        return int(ns * SCALE * mult) >> shift

    def write(self, path, keep, times, later):
        """The records up to the first one with a time; then `times` copies of the kept records, delayed by `later(n, time)`."""
        first = next(number for number, record in enumerate(self.records) if self.time(record))
        begin = self.records[first][1]
        words, moments = array.array("Q"), []
        kept = True
        for record in self.records[first:]:
            kind, at, size = record
            if self.time(record):
                kept = keep(self.time(record))
            if kept and (kind == FINISHED_ROUND or self.time(record)):
                if self.time_at(*record):
                    moments.append((len(words) + (self.time_at(*record) - at) // 8, self.time(record)))
                words.frombytes(self.bytes[at : at + size])
        size = begin - self.at + times * len(words) * 8
        with open(path, "wb") as file:
            file.write(self.bytes[:begin])
            for number in range(times):
                again = words[:]
                for at, time in moments:
                    again[at] += later(number, time)
                again.tofile(file)
            # The feature sections have moved, so their table changes.
            rest = bytearray(self.bytes[self.at + self.size :])
            for slot in range(0, 16 * sum(bin(byte).count("1") for byte in self.bytes[72:104]), 16):
                (offset,) = struct.unpack_from("<Q", rest, slot)
                struct.pack_into("<Q", rest, slot, offset + size - self.size)
            file.write(rest)
            file.seek(48)
            file.write(struct.pack("<Q", size))
        return len(words) * 8


host, guest = Recording("host.data"), Recording("guest.data")
times = [guest.host_time(time) for time in map(guest.time, guest.records) if time]
first, last = min(times) - GAP, max(times) + GAP
period = 2 * int(last - first)


def later(number, time):
    """The delay of a repetition on the host's clock."""
    return number * period + int((time - first) * number / 10_000)


os.makedirs(args.dir, exist_ok=True)
path = lambda name: os.path.join(args.dir, name)
inside = lambda time: first <= time <= last
size = host.write(path("host.data"), inside, 1, later)
count = args.size * 1_000_000 // size + 1
host.write(path("host.data"), inside, count, later)
# In every other repetition, which gives a fifth of the host's bytes.
again = lambda number, time: guest.guest_span(later(2 * number, guest.host_time(time)))
guest.write(path("guest.data"), lambda time: True, count // 2, again)
