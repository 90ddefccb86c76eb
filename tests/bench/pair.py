#!/usr/bin/env python3
"""Makes host.data and guest.data in DIR: the pair of tests/data/guests again and again, each time some seconds later, until the host's is SIZE MB.

usage: pair.py [--size SIZE] DIR      (1000; the guest's comes to a fifth of that)

What both began with stands there once; of the host's records those are repeated that were recorded while the guest's were, so that at every
moment of one there is something in the other. Each time all takes a little longer, or else the guest's offset would be anyone's guess.
"""
import argparse, array, os, struct, subprocess

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument("dir")
parser.add_argument("--size", type=int, default=1000)
args = parser.parse_args()

# The guest's times are perf's, of cycles of the TSC; so are the host's: (t - offset) / scale is what tests/it/merge.rs finds.
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
        """Where a record's time is; None where it has none."""
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
        """So many ns of the host, of this guest's clock."""
        shift, mult, _ = self.conv
        return int(ns * SCALE * mult) >> shift

    def write(self, path, keep, times, later):
        """The records without a time up to the first that has one; then, `times` times, those that are kept, `later(n, time)` later."""
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
            # The table of feature sections tells where they are, which is now elsewhere.
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
    """How much later on the host's clock something happens when it happens again."""
    return number * period + int((time - first) * number / 10_000)


os.makedirs(args.dir, exist_ok=True)
path = lambda name: os.path.join(args.dir, name)
inside = lambda time: first <= time <= last
size = host.write(path("host.data"), inside, 1, later)
count = args.size * 1_000_000 // size + 1
host.write(path("host.data"), inside, count, later)
# Every other time, which is a fifth of the host's bytes.
again = lambda number, time: guest.guest_span(later(2 * number, guest.host_time(time)))
guest.write(path("guest.data"), lambda time: True, count // 2, again)
