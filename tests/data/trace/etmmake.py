#!/usr/bin/env python3
"""Makes a perf.data with the CoreSight trace (ETMv4 or ETE) of what AArch64 programs really executed, and the truth.

  qemu-aarch64-static -singlestep -d exec,nochain -D LOG PROGRAM     PROGRAM: static, not PIE, single-threaded
  etmmake.py OUT.data LOG:PROGRAM… [options]                         needs `pip install capstone pyelftools`
    --truth FILE     (default: OUT.data.truth) lines: from to kind pid cpu; `-` where tracing begins or ends
    --path P         the folder of the programs in the recording
    --sync BYTES     synchronization (A-Sync, Trace Info, address with context) after so many bytes (default 1024)
    --raw            the bytes of the trace unit as they are, as a TRBE writes them, not in frames of 16 bytes
    --overflow N     after every N synchronizations the next 500 instructions are lost
    --cut BYTES      the AUX data ends here
    --ete            an ETE, with source addresses in place of some atoms
    --return-stack   indirect branches to the last call have no address
    --timestamps N   a timestamp after every N branches
    --virtual        the timestamps are those of the counter that TIME_CONV converts
    --cycles         cycle counts
    --context        context ids
    --speculation    branches are traced before they are executed: some are mispredicted, some cancelled
    --q N            a Q element with a count in place of every Nth atom, and in straight code after every 3N instructions
    --interrupt N    an interrupt after every N instructions
    --kernel FILE    the kernel is traced, too: system calls and interrupts go through this file
    --cpus N         a buffer for each CPU; the programs move (implies --context, --timestamps)
    --per-thread     a buffer for each program, which moves: several ids in its frames (with --cpus)
    --slice N        a program runs for so many instructions (default 3000)
    --hw-id          the kernel tells the ids of the trace units, in AUX_OUTPUT_HW_ID
    --copies N       the programs run N times
    --simpleperf     as Android's simpleperf writes it: one event, its own features, the mapping of the kernel without a
                     symbol, and no count in feature AUXTRACE (implies --context and --cpus)
    --init-map       with --simpleperf: the mappings are in feature INIT_MAP

Packets as in Arm IHI 0064, frames as in IHI 0029. Without --kernel only user code is traced."""
import argparse, os, re, struct
from capstone import CS_ARCH_ARM64, CS_MODE_ARM, Cs
from elftools.elf.elffile import ELFFile

A = argparse.ArgumentParser()
A.add_argument('out'); A.add_argument('programs', nargs='+'); A.add_argument('--truth'); A.add_argument('--path')
for name in ('raw', 'ete', 'return-stack', 'cycles', 'context', 'speculation', 'per-thread', 'hw-id', 'simpleperf', 'init-map', 'virtual'):
    A.add_argument('--' + name, action='store_true')
for name, value in dict(sync=1024, overflow=0, cut=0, timestamps=0, q=0, interrupt=0, cpus=0, slice=3000, copies=1).items():
    A.add_argument('--' + name, type=int, default=value)
A.add_argument('--kernel')
O = A.parse_args()
if O.simpleperf: O.context = True; O.cpus = O.cpus or 1
elif O.cpus and not O.per_thread: O.context = True; O.timestamps = O.timestamps or 50
CS = Cs(CS_ARCH_ARM64, CS_MODE_ARM)
PLAIN, COND, DIRECT, INDIRECT, SVC, ISB, ERET = range(7)
PID = 1000

class Code:
    def __init__(self, path):
        self.elf = ELFFile(open(path, 'rb')); self.kinds = {}
        self.segments = [(s['p_vaddr'], s['p_offset'], s.data()) for s in self.elf.iter_segments() if s['p_type'] == 'PT_LOAD' and s['p_flags'] & 1]
    def kind(self, ip):
        found = self.kinds.get(ip)
        if found is None:
            v, _, d = next(s for s in self.segments if s[0] <= ip < s[0] + len(s[2]))
            i = next(CS.disasm(d[ip - v:ip - v + 4], ip), None); m = i.mnemonic if i else ''
            k = SVC if m == 'svc' else ISB if m == 'isb' else ERET if m == 'eret' else DIRECT if m in ('b', 'bl') else PLAIN
            if m.startswith('b.') or m in ('cbz', 'cbnz', 'tbz', 'tbnz'): k = COND
            if re.match(r'(br|blr|ret|bra|blra|reta)', m): k = INDIRECT
            target = int(i.op_str.split('#')[-1], 16) if k in (COND, DIRECT) else 0
            found = self.kinds[ip] = (k, m in ('bl', 'blr', 'blraa'), target)
        return found

class Unit:
    """A trace unit, which belongs to a CPU."""
    def __init__(self, cpu):
        self.id = (0x25 if O.hw_id else 0x10) + cpu; self.b = bytearray(); self.atoms = []; self.last = [0] * 3; self.context = None
        self.on = False; self.at = 0; self.syncs = self.n = 0; self.stack = []; self.branches = 0; self.time = 0; self.cpu = cpu
        self.waiting = 0; self.pid = None; self.el = 0; self.count = 0; self.next_loss = O.overflow or 1 << 60; self.synced = False
    def flush(self):
        a = self.atoms; b = self.b; self.waiting += len(a) if O.speculation else 0
        while a:
            run = 0
            while run < len(a) and a[run]: run += 1
            if run >= 4 or run == 3 and len(a) > 3:
                n = min(run, 24)
                if n == run and run < len(a) and run <= 23: b.append(0xe0 | run - 3); a = a[run + 1:]
                else: b.append(0xc0 | n - 4); a = a[n:]
            elif a[:5] in ([0, 0, 0, 0, 0], [0, 1, 0, 1, 0], [1, 0, 1, 0, 1], [0, 1, 1, 1, 1]):
                b.append({0: 0xd5, 1: 0xd6, 2: 0xd7, 3: 0xf5}[[[0] * 5, [0, 1, 0, 1, 0], [1, 0, 1, 0, 1], [0, 1, 1, 1, 1]].index(a[:5])]); a = a[5:]
            elif a[:4] in ([0, 1, 1, 1], [0] * 4, [0, 1, 0, 1], [1, 0, 1, 0]):
                b.append(0xdc + [[0, 1, 1, 1], [0] * 4, [0, 1, 0, 1], [1, 0, 1, 0]].index(a[:4])); a = a[4:]
            elif len(a) >= 3: b.append(0xf8 | a[0] | a[1] << 1 | a[2] << 2); a = a[3:]
            elif len(a) == 2: b.append(0xd8 | a[0] | a[1] << 1); a = []
            else: b.append(0xf6 | a[0]); a = []
        self.atoms = []
    def commit(self):
        self.flush()
        if self.waiting: self.b.append(0x2d); self.number(self.waiting); self.waiting = 0
    def number(self, n):
        while n > 127: self.b.append(n & 127 | 128); n >>= 7
        self.b.append(n)
    def payload(self, ip): return bytes([ip >> 2 & 0x7f, ip >> 9 & 0x7f])
    def push(self, ip): self.last = [ip] + self.last[:2]
    def address(self, ip, source=False, full=False):
        """The shortest form; with `source` that of ETE's source addresses."""
        self.flush(); b = self.b; l = self.last[0]
        if ip in self.last and not full: b.append((0xb0 if source else 0x90) + self.last.index(ip))
        elif l >> 9 == ip >> 9 and not full: b.extend([0xb4 if source else 0x95, ip >> 2 & 0x7f])
        elif l >> 17 == ip >> 17 and not full: b.extend([0xb4 if source else 0x95, ip >> 2 & 0x7f | 0x80, ip >> 9 & 0xff])
        elif l >> 32 == ip >> 32 and not full: b.append(0xb6 if source else 0x9a); b.extend(self.payload(ip) + (ip >> 16 & 0xffff).to_bytes(2, 'little'))
        else: b.append(0xb8 if source else 0x9d); b.extend(self.payload(ip) + (ip >> 16).to_bytes(6, 'little'))
        self.push(ip); self.n = 0
    def q(self, ip):
        """So many instructions were executed; the next one is at `ip`."""
        self.flush(); b = self.b; l = self.last[0]
        if ip in self.last: b.append(0xa0 + self.last.index(ip))
        elif l >> 9 == ip >> 9: b.extend([0xa5, ip >> 2 & 0x7f])
        elif l >> 17 == ip >> 17: b.extend([0xa5, ip >> 2 & 0x7f | 0x80, ip >> 9 & 0xff])
        elif self.branches % 2: b.append(0xaa); b.extend(self.payload(ip) + (ip >> 16 & 0xffff).to_bytes(2, 'little'))
        else: b.append(0xac); self.number(self.n); self.address(ip); return
        self.number(self.n); self.push(ip); self.n = 0
    def info(self, pid, el): return bytes([0x30 | el | (0x80 if O.context else 0)]) + (pid.to_bytes(4, 'little') if O.context else b'')
    def enter(self, ip, pid, el, full=False):
        """An address, with the context if that has changed."""
        if (pid, el) == self.context and not full: return self.address(ip)
        self.flush()
        if full or self.last[0] >> 32 != ip >> 32: self.b.append(0x85); self.b.extend(self.payload(ip) + (ip >> 16).to_bytes(6, 'little') + self.info(pid, el)); self.push(ip)
        elif self.branches % 2: self.b.append(0x82); self.b.extend(self.payload(ip) + (ip >> 16 & 0xffff).to_bytes(2, 'little') + self.info(pid, el)); self.push(ip)
        else: self.b.append(0x81); self.b.extend(self.info(pid, el)); self.address(ip)
        self.context = (pid, el)
    def timestamp(self):
        self.flush(); t = clock[0] // (8 if O.virtual else 1); old, self.time = self.time, t
        self.b.append(3 if O.cycles else 2); n = 1
        while n < 9 and t >> 7 * n != old >> 7 * n: n += 1
        for i in range(n): self.b.append(t >> 7 * i & 127 | (128 if i < n - 1 else 0) if i < 8 else t >> 56)
        if O.cycles: self.number(self.count % 1000 + 5)
    def sync(self, ip, pid, el, on):
        self.commit(); self.b.extend(bytes(11) + b'\x80')
        # With cycles: what is traced, and the threshold.
        self.b.extend(b'\x01\x09\x01\x04' if O.cycles else b'\x01\x01\x00')
        self.last = [0] * 3; self.time = 0; self.stack = []
        if on: self.b.append(4)
        if O.timestamps and self.syncs % 2: self.timestamp()
        self.enter(ip, pid, el, True)
        if O.timestamps: self.timestamp()
        self.syncs += 1; self.at = len(self.b); self.synced = True
    def begin(self, ip, pid, el):
        if not self.synced: self.sync(ip, pid, el, True)
        else: self.flush(); self.b.append(4); self.stack = []; self.enter(ip, pid, el)
        self.on = True
    def exception(self, kind, ip):
        self.flush(); self.b.extend([6, kind << 1 | 1]); self.address(ip); self.waiting += 1 if O.speculation else 0
    def branch(self, ip, nxt, taken, indirect, links):
        """An atom or a source address, and the target's address."""
        self.branches += 1
        if O.speculation:
            if self.branches % 7 == 0: self.atoms.append(1 - taken); self.flush(); self.b.append(0x30)
            else: self.atoms.append(taken)
            if self.branches % 11 == 0: self.flush(); self.b.extend([0xd9, 0xf7, 0x2e, 3])
            if self.branches % 13 == 0: self.flush(); self.b.extend([0xd9, 0x34]); self.b[-2:] = [0xda, 0xf6 | 1, 0x2e, 3]
            if self.branches % 5 == 0: self.flush(); n = max(self.waiting - 2, 0); self.b.extend([0x2d, n] if n else []); self.waiting -= n
        elif O.q and taken and self.branches % O.q == 0: return self.q(nxt)
        elif O.ete and taken and self.branches % 3 == 0:
            while self.atoms and not self.atoms[-1] and self.branches % 2: self.atoms.pop()
            self.address(ip, source=True)
        else: self.atoms.append(taken)
        if O.cycles and self.branches % 20 == 0:
            self.flush(); n = self.count % 300 + 4
            if n < 8: self.b.append(0x10 | n - 4)
            elif n < 20: self.b.extend([0x0c, n - 4])
            else: self.b.append(0x0e); self.number(n - 4)
        if taken and links: self.stack = (self.stack + [ip + 4])[-8:]
        if taken and indirect:
            if O.return_stack and not links and self.stack and self.stack[-1] == nxt: self.stack.pop()
            else: self.address(nxt)
        self.n = 0
        if O.timestamps and self.branches % O.timestamps == 0: self.timestamp()

clock = [1000]; executed = 0
truth = open(O.truth or O.out + '.truth', 'w')
def line(a, b, kind, pid, unit): truth.write('%s %s %s %d %d\n' % ('-' if a is None else '%x' % a, '-' if b is None else '%x' % b, kind, pid, unit.cpu))

class Process:
    def __init__(self, n, text):
        log, path = text.split(':'); self.pid = PID + n; self.code = Code(path); self.path = os.path.join(O.path or os.path.dirname(os.path.abspath(path)), os.path.basename(path))
        self.ips = [int(x, 16) for x in re.findall(r'\[[0-9a-f]+/([0-9a-f]+)/', open(log).read())] * O.copies; self.n = 0
        self.unit = None; self.since = 0; self.lost = 0; self.choice = 0

kernel = Code(O.kernel) if O.kernel else None
symbols = {s.name: s['st_value'] for s in kernel.elf.get_section_by_name('.symtab').iter_symbols()} if kernel else {}

def step(p, u, code, ip, nxt, el):
    """An instruction that is traced, and what it tells. SVC and ERET are left to the caller."""
    global executed
    executed += 1; clock[0] += 1; u.count += 1; u.n += 1
    k, links, target = code.kind(ip)
    if k != PLAIN: u.p0 = ip
    elif O.q and executed % (3 * O.q) == 0: u.q(nxt)
    if k == COND:
        taken = int(nxt == target); u.branch(ip, nxt, taken, False, False)
        if taken: line(ip, nxt, 'jcc', p.pid, u)
    elif k in (DIRECT, INDIRECT):
        line(ip, nxt, 'call' if links else 'jmp', p.pid, u); u.branch(ip, nxt, 1, k == INDIRECT, links)
    elif k == ISB: u.atoms.append(1); u.n = 0
    return k

def in_kernel(p, u, entry, back):
    """Follows the kernel from `entry` on, until it goes back to `back`."""
    global executed
    ip = symbols[entry]; calls = []; u.enter(ip, p.pid, 1)
    while True:
        k, links, target = kernel.kind(ip)
        if k == COND: p.choice += 1; nxt = target if p.choice * 7 % 5 < 2 else ip + 4
        elif k == DIRECT: nxt = target
        elif k == INDIRECT: nxt = symbols['work'] if links else calls.pop()
        else: nxt = ip + 4
        if links: calls.append(ip + 4)
        if k == ERET:
            executed += 1; clock[0] += 1; u.count += 1; line(ip, back, 'eret', p.pid, u)
            u.atoms.append(1); u.enter(back, p.pid, 0); return
        step(p, u, kernel, ip, nxt, 1); ip = nxt

def run(p, u, count):
    """A slice of a process on a CPU."""
    global executed
    fresh = True
    while count and p.n < len(p.ips):
        ip = p.ips[p.n]; nxt = p.ips[p.n + 1] if p.n + 1 < len(p.ips) else None; p.n += 1; count -= 1
        k = p.code.kind(ip)[0]
        if p.lost:
            p.lost -= 1
            if p.lost or k != PLAIN: p.lost = max(p.lost, 1); fresh = True
            else: fresh = True; continue
            continue
        if fresh: u.begin(ip, p.pid, 0); line(None, ip, 'start', p.pid, u); fresh = False
        elif len(u.b) - u.at > O.sync and p.code.kind(p.ips[p.n - 2])[0] not in (PLAIN, SVC): u.sync(ip, p.pid, 0, False)
        if u.syncs >= u.next_loss and k == PLAIN:
            executed += 1; u.flush(); u.b.extend(b'\x00\x05'); p.lost = 500; u.next_loss += O.overflow; u.synced = False; line(u.p0, None, 'lost', p.pid, u); continue
        if k == SVC:
            executed += 1; clock[0] += 1; u.count += 1; u.exception(2, ip + 4)
            if kernel and nxt == ip + 4: line(ip, symbols['entry_svc'], 'svc', p.pid, u); in_kernel(p, u, 'entry_svc', nxt)
            else: line(ip, None, 'svc', p.pid, u); fresh = True
            continue
        if nxt is None: executed += 1; u.commit(); line(ip, None, 'end', p.pid, u); continue
        step(p, u, p.code, ip, nxt, 0); p.since += 1
        if O.interrupt and p.since >= O.interrupt:
            p.since = 0; u.exception(14, nxt)
            if kernel: line(ip, symbols['entry_irq'], 'irq', p.pid, u); in_kernel(p, u, 'entry_irq', nxt)
            else: line(ip, None, 'irq', p.pid, u); fresh = True
    if not fresh and p.n < len(p.ips):  # It is preempted.
        u.exception(14, p.ips[p.n]); line(p.ips[p.n - 1], None, 'switch', p.pid, u)
    u.flush()

processes = [Process(n, text) for n, text in enumerate(O.programs)]
units = [Unit(n) for n in range(O.cpus or 1)]
# Pieces of each buffer: (the unit's id, its bytes).
buffers = {}
turn = 0
while any(p.n < len(p.ips) for p in processes):
    for n, p in enumerate(processes):
        if p.n >= len(p.ips): continue
        u = units[(turn + n) % len(units)] if O.cpus else units[0]; start = len(u.b)
        if O.per_thread: u.synced = False  # The unit is switched on for each slice.
        run(p, u, O.slice if O.cpus or len(processes) > 1 else 1 << 60)
        key = p.pid if O.per_thread or not O.cpus else u.cpu
        buffers.setdefault(key, []).append((u.id, start, u))
        buffers[key][-1] += (len(u.b),)
    turn += 1
for u in units: u.commit()
truth.write('instructions %d\n' % executed); truth.close()

def frames(pieces):
    """Frames of 16 bytes; where the id changes, it does so at once or after the next byte."""
    data = [(i, x) for i, b in pieces for x in b]; out = bytearray(); p = 0; current = None; flips = 0
    while p < len(data):
        f = bytearray(16); i = 0
        while i < 15:
            if p >= len(data):
                if i % 2 == 0: f[i] = 1
                i += 1; continue
            who, x = data[p]
            if i % 2 == 0 and who != current: f[i] = who << 1 | 1; current = who; i += 1; continue
            if i % 2 == 0 and i < 14 and p + 1 < len(data) and data[p + 1][0] != current:
                # The id is written in front of the last byte of the one before.
                f[i] = data[p + 1][0] << 1 | 1; f[i + 1] = x; f[15] |= 1 << i // 2; current = data[p + 1][0]; p += 1; i += 2; flips += 1; continue
            if i % 2 and who != current: f[i - 1:i] = f[i - 1:i]; raise SystemExit('an id changes at an odd place')
            if i % 2: f[i] = x
            else: f[i] = x & 0xfe; f[15] |= (x & 1) << i // 2
            p += 1; i += 1
        out += f
    return bytes(out)
aux = []
for key, pieces in buffers.items():
    data = [(i, bytes(u.b[a:b])) for i, a, u, b in pieces]
    # What a unit tells at last.
    if not O.per_thread and O.cpus or not O.cpus: u = pieces[0][2]; data = [(u.id, bytes(u.b))]
    d = b''.join(b for _, b in data) if O.raw else frames(data)
    d = d[:O.cut or None]; aux.append((key, d + b'\0' * (-len(d) % 16)))
T0 = 1_000_000_000
def rec(t, misc, body): return struct.pack('<IHH', t, misc, 8 + len(body)) + body
def name(s): s = s.encode() + b'\0'; return s.ljust((len(s) + 7) // 8 * 8, b'\0')
def trailer(pid, t, cpu=0, i=None):
    if O.simpleperf: return struct.pack('<IIQQII', pid, pid, t, 100 + cpu, cpu, 0)
    return struct.pack('<IIQIIQ', pid, pid, t, cpu, 0, i or 300)
n_ids = len(aux); per_cpu = O.cpus and not O.per_thread
ids = [100 + n for n in range(n_ids)]
ST = 1 | 2 | 4 | 64 | 128 | 256 if O.simpleperf else 1 | 2 | 4 | 128 | 1 << 16
config = (O.context and 1 << 14) | (O.timestamps and 1 << 28) | (O.return_stack and 1 << 29) | (O.cycles and 1 << 12)
def attr(type, config, period, flags): return struct.pack('<IIQQQQQ', type, 128, config, period, ST, 4, flags).ljust(128, b'\0')
only_user = 0 if kernel else 1 << 5 | 1 << 6
side = 1 << 8 | 1 << 9 | 1 << 13 | 1 << 23 | 1 << 24
attrs = [attr(8, config, 1, 1 | 1 << 18 | only_user | side)] if O.simpleperf else [attr(8, config, 1, 1 | 1 << 18 | only_user), attr(1, 9, 1, 1 << 18 | only_user | side)]
all_ids = [ids] if O.simpleperf else [ids, [300]]; flat = sum(all_ids, [])
data = b'' if O.simpleperf else rec(69, 0, struct.pack('<Q', n_ids + 1) + b''.join(struct.pack('<QQQQ', 100 + n, n, n if per_cpu else 0xffffffffffffffff, 0xffffffffffffffff if per_cpu else k) for n, (k, _) in enumerate(aux)) + struct.pack('<QQQQ', 300, 0, 0, PID))
configr = (O.context and 1 << 6) | (O.timestamps and 1 << 11) | (O.return_stack and 1 << 12) | (O.cycles and 1 << 4)
id8 = 16 if O.speculation else 0
priv = [1, 8 << 32 | len(units), 0]
for u in units:
    regs = [configr, 1 << 31 | 0x10 + 2 * u.cpu if O.hw_id else u.id, 0x28000ea1 | (O.q and 1 << 15), 0xffff if O.ete else 0x4100f422, 0x20001088, id8, 0xcc]
    source = 1 if O.virtual else 0xffffffffffffffff
    if O.ete: regs = regs[:3] + [0x4100fff3] + regs[4:] + [0x47705a13, source]
    else: regs += [source]
    if O.simpleperf: regs.pop()  # It does not tell where timestamps come from.
    priv += [0x5050505050505050 if O.ete else 0x4040404040404040, u.cpu, len(regs)] + regs
# 2.5 ns a tick.
if O.virtual: data += rec(79, 0, struct.pack('<5Q8B', 2, 10, T0, 0, 0, 1, 0, *bytes(6)))
data += rec(70, 0, struct.pack('<II', 3, 0) + struct.pack('<%dQ' % len(priv), *priv))
maps = b''
if kernel:
    v = symbols['_text']; size = symbols['_etext'] - v
    maps += rec(1, 1, struct.pack('<IIQQQ', 0xffffffff, 0, v, size, 0 if O.simpleperf else v) + name('[kernel.kallsyms]' + ('' if O.simpleperf else '_text')) + trailer(0, 0))
for p in processes:
    maps += rec(3, 1 << 13, struct.pack('<II', p.pid, p.pid) + name('prog') + trailer(p.pid, T0))
    for v, o, d in p.code.segments:
        base = v & ~4095; maps += rec(10, 2, struct.pack('<IIQQQIIQQII', p.pid, p.pid, base, (v + len(d) - base + 4095) & ~4095, o & ~4095, 0, 0, 0, 0, 5, 2) + name(p.path) + trailer(p.pid, T0 + 1))
if not O.init_map: data += maps
if O.hw_id: data += b''.join(rec(21, 0, struct.pack('<Q', u.id) + trailer(PID, T0 + 2, u.cpu, 100)) for u in units)
for n, (key, d) in enumerate(aux):
    pid, cpu = (PID, key) if per_cpu else (key, 0)
    data += rec(12, 0, struct.pack('<II', pid, pid) + trailer(pid, T0 + 2, cpu, ids[n]))
    data += rec(11, 0, struct.pack('<QQQ', 0, len(d), 0x100 if O.raw else 0) + trailer(pid, T0 + 100, cpu, ids[n]))
start = 104 + 8 * len(flat) + len(attrs) * 144; index = []
for n, (key, d) in enumerate(aux):
    index.append((start + len(data), 48))
    tid, cpu = (0xffffffff, key) if per_cpu else (key, 0xffffffff)
    data += struct.pack('<IHHQQQIIII', 71, 0, 48, len(d), 0, 0x1234 + n, n, tid, cpu, 0) + d
for p in processes: data += rec(4, 0, struct.pack('<IIIIQ', p.pid, 1, p.pid, 1, T0 + 200) + trailer(p.pid, T0 + 200))
if not O.simpleperf: data += rec(68, 0, b'')
def text(s): t = s.encode() + b'\0'; t = t.ljust((len(t) + 63) // 64 * 64, b'\0'); return struct.pack('<I', len(t)) + t
desc = struct.pack('<II', 2, 128)
for a, i, n in zip(attrs, all_ids, ['cs_etm//' + ('' if kernel else 'u'), 'dummy:u']): desc += a + struct.pack('<I', len(i)) + text(n) + struct.pack('<%dQ' % len(i), *i)
feats = {3: text('host'), 4: text('6.6'), 5: text('6.6'), 6: text('aarch64'), 7: struct.pack('<II', len(units), len(units)), 12: desc, 18: struct.pack('<Q', len(index)) + b''.join(struct.pack('<QQ', *i) for i in index)}
if O.simpleperf:
    def varint(n): return bytes([n & 127 | 128]) + varint(n >> 7) if n > 127 else bytes([n])
    def field(n, wire, v): return varint(n << 3 | wire) + (varint(v) if wire == 0 else varint(len(v)) + v)
    def file(path, kind, at, rest): m = field(1, 2, path.encode()) + field(2, 0, kind) + field(3, 0, at) + rest; return struct.pack('<I', len(m)) + m
    def note(elf): n = next(iter(elf.get_section_by_name('.note.gnu.build-id').iter_notes()))['n_desc']; return bytes.fromhex(n).ljust(20, b'\0')
    def id_of(misc, pid, elf, path): return rec(67, misc, struct.pack('<I', pid) + note(elf) + b'\0' * 4 + path.encode().ljust((len(path) // 64 + 1) * 64, b'\0'))
    programs = {p.path: p.code for p in processes}
    feats = {f: feats[f] for f in (4, 5, 6)}
    feats[2] = b''.join(id_of(2, 0xffffffff, c.elf, path) for path, c in programs.items()) + (id_of(1, 0xffffffff, kernel.elf, '[kernel.kallsyms]') if kernel else b'')
    feats[11] = struct.pack('<I', 4) + b''.join(text(word) for word in ('simpleperf', 'record', '-e', 'cs-etm' if kernel else 'cs-etm:u'))
    feats[18] = b''.join(struct.pack('<QQ', *i) for i in index)
    feats[129] = b''.join(word.encode() + b'\0' for word in ('simpleperf_version', '1.build.0', 'system_wide_collection', 'true', 'trace_offcpu', 'false', 'event_type_info', 'cs-etm,8,0', 'android_version', '15', 'recording_process', '999', 'clockid', 'perf'))
    # 0: the kernel, 2: an ELF file; there is a symbol that was hit.
    feats[132] = b''.join(file(path, 2, c.segments[0][0], field(4, 2, field(1, 0, c.segments[0][0]) + field(2, 0, 64) + field(3, 2, b'begin')) + field(6, 2, field(1, 0, c.segments[0][1]))) for path, c in programs.items()) + (file('[kernel.kallsyms]', 0, 0, b'') if kernel else b'')
    if O.init_map: feats[134] = maps
ab = b''.join(a + struct.pack('<QQ', 104 + 8 * sum(len(x) for x in all_ids[:n]), 8 * len(all_ids[n])) for n, a in enumerate(attrs))
idb = struct.pack('<%dQ' % len(flat), *flat); end = start + len(data); table = body = b''; q = end + 16 * len(feats)
for k in sorted(feats): table += struct.pack('<QQ', q, len(feats[k])); body += feats[k]; q += len(feats[k])
open(O.out, 'wb').write(b'PERFILE2' + struct.pack('<8Q', 104, 144, 104 + 8 * len(flat), len(ab), start, len(data), 0, 0) + sum(1 << k for k in feats).to_bytes(32, 'little') + idb + ab + data + table + body)
print('%d instructions, %d bytes of trace, %d synchronizations' % (executed, sum(len(d) for _, d in aux), sum(u.syncs for u in units)))
