#!/usr/bin/env python3
"""Makes a perf.data with an Intel PT trace of what a program really executed, and the truth beside it.

  ptmake.py OUT.data STEPS… [options]     STEPS: outputs of `step`, one per process; needs `pip install capstone`
  packets:
    --no-retcomp        returns are always TIP packets (config bit 11)
    --psb BYTES         a PSB after so many bytes (default 2048)
    --mtc               MTC and TMA packets (TSC:CTC 2:1, period 64 ticks of the counter)
    --cyc               CYC packets: cycles since the last one before every TNT and TIP (one cycle per instruction)
    --ptw N             a PTW packet (8 bytes: how many instructions so far) after every N instructions
    --power N           after every N instructions one of: MWAIT, PWRE, EXSTOP and FUP, PWRX; CBR; EXSTOP without an address
    --event N           after every N instructions one of: a page fault (EVD, CFE, FUP, TIP.PGD, CFE, MODE.Exec, TIP.PGE); a
                        CFE with a FUP of its own; MODE.Exec and FUP (interrupt flag)
    --pip               PIP packets in PSB+, and where the kernel begins
    --ptw-ip            PTW packets have a FUP
    --tsx N             a transaction begins, is committed, begins or is aborted after every N instructions (MODE.TSX, FUP)
    --pebs N            after every N instructions a sample of PEBS (BBP, BIP, BEP), in turn of all forms, as events with
                        aux_output write them: cycles, and with --hw-ids, which adds AUX_OUTPUT_HW_ID records, instructions, too
    --sample-type BITS, --branch-sample-type BITS   of the event cycles of --pebs
    --events-only       no branches are traced (branch=0)
    --old-psb           PSB+ in another order: TSC, CBR, MODE.Exec, PIP, FUP. By default it is that of processors: MODE.TSX, MODE.Exec,
                        FUP, PIP, TSC, CBR
    --late-psbend       PSBEND of a PSB+ without tracing comes after the TIP.PGE that follows
    --psb-at-start      a PSB where a process begins to run, as where perf switches the tracer on
    --skip N            the trace begins with its Nth PSB, and the truth with it
    --errata NAMES      what some processors do wrong (errata of Intel), separated by commas:
                        bdm70: FUP and MODE.Exec in a PSB+ while tracing is off
                        skl014: a TIP.PGD of --filter at a direct jump or call has no address
                        with --ovf one after the other: apl11: TIP.PGD after OVF; apl12: a FUP after OVF, but tracing is off;
                        skd010: the FUP after OVF is missing; skd007: OVF comes after the first byte of a CYC packet (--cyc)
                        bdm64: an indirect branch before an abort (--tsx) has a wrong target
                        skd022: a FUP before the TIP.PGD where --guest is entered without being traced
                        skz84: TMA packets of the guest are wrong, and followed by a byte
    --cpu CPU           family, model and stepping of the processor (default 6,142,10)
    --defer             TIP packets are deferred: TNT bits of branches after them are sent before them (SDM: Deferred TIPs)
    --short-first       the address after a PSB is compressed against 0 (allowed, but perf's look-ahead misreads it)
    --ovf N             after every N PSBs the next 500 instructions are lost (OVF, then FUP where the trace goes on)
    --cut BYTES         each CPU's AUX data ends here (in the middle of a packet, if it falls so)
  who runs where:
    --slice N           several processes take turns, N instructions each (SWITCH records; default 10000)
    --cpus N            on N CPUs with an AUX buffer each, processes move between them (SWITCH_CPU_WIDE records)
    --snapshots N       the data of each CPU is N snapshots of a ring of --ring BYTES (default 1200), which overlap; each is
                        taken where tracing is off
    --per-thread        an AUX buffer for each process instead of each CPU
    --one-process       the processes are threads of the first one (the truth names threads, not processes)
    --sched-switch      samples of sched:sched_switch in place of SWITCH records, as older kernels need for whole CPUs
    --sample N          a sample of the event cycles after every N instructions
    --aux-sample BYTES  these samples hold the last BYTES of the trace, and nothing else does; tracing is off while one is taken
                        (the truth ends with the last sample, and is whole if BYTES are more than what is traced between two)
    --poke N            with --kernel: after N instructions, the conditional jump in `work` becomes one without a condition
                        (TEXT_POKE record)
    --kernel VMLINUX    kernel code is traced, too: system calls and signals run through it (kernel.S; decode with perf -k VMLINUX)
    --bpf A,B           with --kernel: every other indirect call in the kernel is of the BPF program A (bpf.S), from the instruction
                        --bpf-swap on (default 2000) of B, which is loaded at the same address (KSYMBOL, BPF_EVENT, BPF_PROG_INFO),
                        and from --bpf-poke on (default 3000) B begins with a call of `work` (TEXT_POKE)
    --jit DUMP          code in memory without a file is of a JIT compiler (jit.c): it is in this jitdump, with its times
    --guest             VMLINUX enters a guest (VMRESUME in kvm.S): PIP with NR=1, addresses of the guest, which are also those of
                        the host, an interrupt and sometimes a PSB in it, then FUP, PIP with NR=0 and TIP where it is left;
                        the truth has only the branches into the guest and out of it
    --guest-steps S,…   what runs in the guest with --guest: outputs of `step`, as processes 500, 501… that take turns, with the
                        records of the guest that `perf inject --guest-data` adds; the longest part without a system call, or with
    --guest-kernel VMLINUX   all of it, and the kernel of the guest
    --filter FILTERS    only code in these places is traced, as perf writes it: filter OFFSET/SIZE@FILE,… (a branch that leaves
                        them is a TIP.PGD with its target)
  length:
    --repeat N          every process executes its whole trace N times
    --copies N          the whole trace N times, times moved on (long traces in no time; the truth is of the first copy)
  --truth FILE          what was executed (default: OUT.truth): lines "from to kind pid cpu" per taken branch, "- ip start …",
                        "ip - end …" where tracing begins and ends, "- ip lost …" after an overflow, "# ptw value pid cpu",
                        "# pebs pid cpu";
                        the last line counts instructions
Time: one tick of the counter per instruction; TIME_CONV is 1 ns a tick. A process that has
nothing above 4 GB runs 32-bit code (MODE.Exec). Without --kernel tracing is of user code only, as with
intel_pt//u: it ends at a system call or signal (TIP.PGD) and begins again with the next instruction (TIP.PGE).
Packets as in Intel SDM volume 3, chapter Intel Processor Trace; AUXTRACE_INFO as perf reads it."""
import argparse, struct, zlib
from capstone import Cs, CS_ARCH_X86, CS_MODE_32, CS_MODE_64, x86
A = argparse.ArgumentParser(usage=__doc__)
A.add_argument('out'); A.add_argument('steps', nargs='+'); A.add_argument('--truth'); A.add_argument('--errata', default=''); A.add_argument('--cpu', default='6,142,10'); A.add_argument('--kernel'); A.add_argument('--filter', default=''); A.add_argument('--guest-steps', default=''); A.add_argument('--guest-kernel'); A.add_argument('--bpf', default=''); A.add_argument('--jit')
for o in 'old-psb late-psbend psb-at-start no-retcomp mtc cyc defer short-first per-thread one-process sched-switch pip ptw-ip hw-ids events-only guest'.split(): A.add_argument('--' + o, action='store_true')
A.add_argument('--sample-type', type=lambda t: int(t, 0), default=0xec808); A.add_argument('--branch-sample-type', type=lambda t: int(t, 0), default=1 << 17)
for o, d in dict(skip=0, pebs=0, psb=2048, repeat=1, copies=1, ovf=0, event=0, slice=0, cut=0, cpus=1, ptw=0, power=0, tsx=0, snapshots=0, ring=1200, sample=0, aux_sample=0, poke=0, bpf_swap=2000, bpf_poke=3000).items(): A.add_argument('--' + o.replace('_', '-'), type=int, default=d)
O = A.parse_args(); O.errata = O.errata.split(','); O.guest |= bool(O.guest_steps)
FILTERS = [(int(place.split('/')[0], 0), int(place.split('/')[1], 0), file) for place, file in (f.split()[1].split('@') for f in O.filter.split(',') if f)]
CS = {m: Cs(CS_ARCH_X86, m) for m in (CS_MODE_64, CS_MODE_32)}
for c in CS.values(): c.detail = True
PLAIN, COND, JUMP, CALL, IJUMP, ICALL, RET, SYSCALL, REP, FARRET, VMENTRY = range(11)
NAMES = {COND: 'jcc', JUMP: 'jmp', CALL: 'call', IJUMP: 'jmp*', ICALL: 'call*', RET: 'ret', SYSCALL: 'syscall', FARRET: 'iret'}
T0 = 1_000_000_000

def classify(ip, code, mode=CS_MODE_64):
    """-> kind, length, target of a direct branch"""
    i = next(CS[mode].disasm(code, ip), None)
    if i is None: return PLAIN, 1, 0  # an instruction that capstone does not know: not a branch
    g = set(i.groups); imm = i.operands and i.operands[0].type == x86.X86_OP_IMM; n = i.size; m = i.mnemonic.split()[-1]; to = i.operands[0].imm & (1 << 64) - 1 if imm else 0
    if m in ('syscall', 'sysenter') or m.startswith('int'): return SYSCALL, n, 0
    if m in ('vmresume', 'vmlaunch'): return VMENTRY, n, 0
    if m.startswith(('iret', 'sysret', 'sysexit')): return FARRET, n, 0
    if x86.X86_GRP_RET in g: return RET, n, 0
    if x86.X86_GRP_CALL in g: return (CALL, n, to) if imm else (ICALL, n, 0)
    # by id: the mnemonic may be 'notrack jmp' or 'bnd jmp'
    if i.id in (x86.X86_INS_JMP, x86.X86_INS_LJMP): return (JUMP, n, to) if imm else (IJUMP, n, 0)
    if m == 'xbegin': return PLAIN, n, 0
    if x86.X86_GRP_JUMP in g or m.startswith('loop') or m.endswith('cxz'): return COND, n, to
    return (REP if i.mnemonic.startswith('rep') and i.id not in (x86.X86_INS_NOP, x86.X86_INS_PAUSE) else PLAIN), n, 0

def events(path):
    """yields ('ip', address) | ('sys',) | ('sig',) | ('maps', text) | ('code', address, bytes)"""
    b = open(path, 'rb').read(); p = 0
    while p < len(b):
        k, = struct.unpack_from('<Q', b, p); p += 8
        if k == 1:
            n, = struct.unpack_from('<Q', b, p); p += 8
            for ip in struct.unpack_from('<%dQ' % n, b, p): yield 'ip', ip
            p += 8 * n
        elif k == 2: p += 8; yield 'sys',
        elif k == 3: p += 8; yield 'sig',
        elif k == 4: n, = struct.unpack_from('<Q', b, p); yield 'maps', b[p + 8:p + 8 + n].decode(); p += 8 + (n + 7) // 8 * 8
        elif k == 5: yield 'code', struct.unpack_from('<Q', b, p)[0], b[p + 8:p + 24]; p += 24
        elif k == 6: p += 8

class Encoder:
    """One buffer: of a CPU, or with --per-thread of a process."""
    def __init__(s):
        s.b = bytearray(); s.tnt = []; s.tips = []; s.last = 0; s.stack = []; s.on = False; s.since = 0; s.psbs = 0; s.ctc = None; s.tsc = []; s.now = T0; s.cycled = None
        s.next_ovf = O.ovf or 1 << 60; s.powers = s.transactions = s.inside = 0; s.next_power = O.power or 1 << 60; s.next_tsx = O.tsx or 1 << 60; s.next_event = O.event or 1 << 60; s.next_pebs = O.pebs or 1 << 60; s.blocks = 0; s.traced_events = 0; s.flag = 4 if O.event else 0; s.flagged = 0; s.lost = 0; s.stops = []; s.nr = s.guests = 0; s.late = False; s.begins = 0, 0, 0; s.mode = CS_MODE_64
    def cyc(s):
        if not O.cyc or s.cycled is None or s.now <= s.cycled: return
        v = s.now - s.cycled; s.cycled = s.now; first = (v & 31) << 3 | 3; v >>= 5; out = [first | (4 if v else 0)]
        while v: out.append((v & 127) << 1 | (1 if v >> 7 else 0)); v >>= 7
        s.b += bytes(out)
    def flush(s):
        """TNT: short ones of up to 6 branches, longer runs as long ones of up to 47; then the deferred TIPs"""
        if s.tnt: s.cyc()
        while s.tnt:
            if len(s.tnt) > 6:
                t, s.tnt = s.tnt[:47], s.tnt[47:]; v = 1
                for x in t: v = v << 1 | x
                s.b += b'\x02\xa3' + v.to_bytes(6, 'little')
            else:
                v = 1
                for x in s.tnt: v = v << 1 | x
                s.tnt = []; s.b.append(v << 1)
        t, s.tips = s.tips, []
        for x in t: s.ip(0x0d, x)
    def branch(s, taken):
        if O.events_only: return
        s.tnt.append(int(taken))
        if len(s.tnt) >= 47: s.flush()
    def tip(s, ip):
        if O.events_only: return
        if O.defer and s.tnt: s.tips.append(ip)
        else: s.flush(); s.cyc(); s.ip(0x0d, ip)
    def ip(s, op, ip):
        d = ip ^ s.last; full = not s.last and not O.short_first  # last 0: after PSB and OVF
        if not full and d < 1 << 16: f, n = 1, 2
        elif not full and d < 1 << 32: f, n = 2, 4
        elif ip >> 47 in (0, 0x1ffff): f, n = 3, 6
        else: f, n = 6, 8
        s.b.append(f << 5 | op); s.b += ip.to_bytes(8, 'little')[:n]; s.last = ip
    def time(s):
        t = s.now; s.tsc.append(len(s.b) + 1); s.b += b'\x19' + t.to_bytes(7, 'little')
        if O.mtc and s.nr and 'skz84' in O.errata: s.b += b'\x02\x73\x12\x34\x56\x78\x9a\xad'; s.ctc = None
        elif O.mtc: c = t // 2; s.b += b'\x02\x73' + (c & 0xffff).to_bytes(2, 'little') + b'\0' + (t % 2).to_bytes(2, 'little'); s.ctc = c // 64
        s.cycled = t
    def mtc(s):
        if O.mtc and s.ctc is not None and s.now // 2 // 64 > s.ctc: s.ctc = s.now // 2 // 64; s.flush(); s.cyc(); s.b += b'\x59' + bytes([s.ctc & 0xff])
    def psb(s, ip):
        """`ip` is None while tracing is off"""
        s.flush(); s.skipped(); s.b += b'\x02\x82' * 8; s.last = 0; s.stack = []; pip = s.pip(s.nr) if O.pip or O.guest else b''
        if O.old_psb: s.time(); s.b += b'\x02\x03\x20\0' + s.exec() + pip
        if ip is not None and not O.events_only: s.b += b'' if O.old_psb else bytes([0x99, 0x20 | s.inside]) + s.exec(); s.ip(0x1d, ip)
        if not O.old_psb: s.b += pip; s.time(); s.b += b'\x02\x03\x20\0'
        s.late = ip is None and O.late_psbend
        if not s.late: s.b += b'\x02\x23'
        s.since = len(s.b); s.psbs += 1
    def skipped(s):
        if O.skip == s.psbs + 1: s.begins = len(s.b), truth.tell(), executed
    def pip(s, guest=0): return b'\x02\x43' + ((0x777000 if guest else 0x12345000) >> 4 | guest).to_bytes(6, 'little') + (b'\x02\xc8' + (0x9a).to_bytes(5, 'little') if O.guest else b'')
    def exec(s): return b'' if O.events_only else b'\x99' + bytes([(2 if s.mode == CS_MODE_32 else 1) | s.flag])
    def begin(s, ip, mode=CS_MODE_64, start=False):
        if s.nr: s.ip(0x0d, ip); s.on = True; return
        mode, s.mode = s.mode, mode
        if not s.b or len(s.b) - s.since > O.psb or start and O.psb_at_start: s.psb(ip if 'bdm70' in O.errata else None)
        s.time()
        if mode != s.mode or not O.old_psb: s.b += s.exec()
        if not O.events_only: s.ip(0x11, ip)
        if s.late: s.b += b'\x02\x23'; s.late = False
        s.on = True
    def end(s, ip=None):
        """at a system call or, if `ip` is given, before the instruction there"""
        s.flush(); s.cyc()
        s.on = False
        if O.events_only: return
        if s.nr: return s.ip(0x1d, ip)
        if ip is not None: s.ip(0x1d, ip)
        s.b.append(0x01); s.stops.append(len(s.b))
    def power(s, ip):
        s.flush(); s.cyc(); s.powers += 1; n = s.powers
        if n % 3 == 1:
            s.b += b'\x02\xc2' + (n | 1 << 32).to_bytes(8, 'little') + b'\x02\x22' + bytes([0x80 * (n // 3 % 2), n & 0xff]) + b'\x02\xe2'
            s.ip(0x1d, ip); s.b += b'\x02\xa2' + (0x153 + n).to_bytes(5, 'little')
        elif n % 3 == 2: s.b += b'\x02\x03' + bytes([0x20 + n % 8, 0])
        else: s.b += b'\x02\x62\x02\xa2' + (0x412).to_bytes(5, 'little')
    def tsx(s, ip):
        s.flush(); s.cyc(); state = (1, 0, 1, 2)[s.transactions % 4]; s.inside = state & 1; s.b += b'\x99' + bytes([0x20 | state]); s.ip(0x1d, ip); s.transactions += 1
        if s.transactions % 4 == 0: s.ip(0x0d, ip)
    def guest(s, entered, back, say):
        if 'skd022' in O.errata:
            say(entered, None, 'vmentry'); s.flush(); s.ip(0x1d, entered); s.b.append(0x01); s.now += 10; s.time(); s.b += s.exec(); s.ip(0x11, back); s.stack = []
            return say(None, back, 'vmexit')
        say(entered, None, 'vmentry'); s.guest_runs(back) if O.guest_steps else s.hidden_guest(back); say(None, back, 'vmexit')
    def hidden_guest(s, back):
        """from the entry to the exit: branches that are no business of the host"""
        s.flush(); s.nr = 1; s.guests += 1; n = s.guests; s.b += s.pip(1); at = K.sym['work']; s.ip(0x0d, at)
        for i in range(n % 5): s.branch(i % 2)
        s.flush(); s.now += 5
        if n % 3 == 1: s.ip(0x1d, at + 2); s.ip(0x0d, K.sym['asm_common_interrupt']); s.flush()  # an interrupt
        if n % 3 == 2: s.psb(at)
        if n % 4 == 3: s.ip(0x0d, 0x401050); s.branch(1); s.branch(0); s.flush(); s.ip(0x0d, 0xffffffffc0001000)  # to its user code and back, to code that no host has
        s.now += 5; s.ip(0x1d, at + 2); s.nr = 0; s.b += s.pip(0); s.stack = []; s.ip(0x0d, back)
    def guest_runs(s, back):
        """a guest whose code is known; each process has some turns"""
        global K
        s.flush(); s.guests += 1; n = s.guests; p = G[n // 3 % len(G)]
        if n == 1 or n % 3 == 0: s.now += 40; records.append((s.now - 20, rec(14, 4, trailer(p.pid, s.now - 20, 0, 600)))); s.time()
        host, K = K, GK; s.nr = 1; s.b += s.pip(1)
        if not turn(p, C[0], 60 + 37 * n % 90): raise SystemExit('the program of the guest is too short')
        s.flush(); K = host; s.nr = 0; s.b += s.pip(0); s.ip(0x0d, back); s.on = True; s.mode = CS_MODE_64
    def event(s, ip):
        """-> whether tracing has ended"""
        s.flush(); s.cyc(); s.traced_events += 1; n = s.traced_events
        if n % 4 == 1:
            s.b += b'\x02\x53\0' + (0x7f0000001000 + 16 * n).to_bytes(8, 'little')
            if n % 8 == 5: s.b += b'\x02\x53\x07' + n.to_bytes(8, 'little')
            s.b += bytes([2, 0x13, 1, 14]); s.end(ip)
            s.now += 20; s.time(); s.b += bytes([2, 0x13, 2, 0]); s.flag ^= 4; s.b += s.exec() if O.old_psb else b""; return True
        if n % 4 == 2: s.b += bytes([2, 0x13, 0x80 | 4, 0]); s.ip(0x1d, ip)
        elif n % 4 == 3: s.flag ^= 4; s.b += s.exec(); s.ip(0x1d, ip); s.flagged = len(s.b)
        else: s.b += b'\x02\x53\x01' + n.to_bytes(8, 'little') + bytes([2, 0x13, 0x80 | 31, n & 255]); s.ip(0x1d, ip)
    def group(s, kind, items, small=False):
        """BBP, and a BIP for each item"""
        s.b += bytes([2, 0x63, kind | (0x80 if small else 0)])
        for i, v in items: s.b += bytes([i << 3 | 4]) + v.to_bytes(8, 'little')[:4 if small else 8]
    def pebs(s, ip):
        """registers come all or none, as a processor writes them: perf confuses them if some are missing"""
        s.flush(); s.cyc(); s.blocks += 1; n = s.blocks; form = n % 12
        basic = [(0, ip + 1), (1, (1, 2, 3)[n % 3] if O.hw_ids else 1), (2, s.now - 3)]
        registers = [(0, 0x246), (1, ip + 2)] + [(i, 0x1100 * i + n) for i in range(2, 18)]; xmm = [(i, (i + 1) << 32 | n) for i in range(32)]
        lbr = lambda at, count: [(3 * i + k, (0x401000 + 16 * (at + i), 0x401100 + 16 * (at + i), (n + i) % 2 << 63 | i % 3 << 61 | 7 + at + i)[k]) for i in range(count) for k in range(3)]
        if form == 2: s.group(4, [(0, 0x666)]); s.b += s.exec()  # a block without an end
        s.group(4, basic[:2] if form in (0, 3, 5) else basic[1:2] if form == 2 else basic[1:] if form == 4 else basic)
        if form in (0, 1, 3, 4, 6, 9, 11): s.group(1, registers, form == 6)
        if form in (1, 4, 11): s.group(0x10, xmm)
        if form in (1, 7): s.group(5, [(0, 0x7ffe0000 + n), (1, 0x5), (2, 33 + n), (3, 0)])
        if form == 8: s.group(5, [(0, 0x7ffe0000 + n), (2, (44 + n) << 32 | 5), (3, 0x12 << 32 | 77)])
        if form == 9: s.group(1, [(2, 7 << 24 | 1)]); s.group(5, [(3, 0x13 << 32 | 99)])
        if form == 10: s.group(8, lbr(0, 10)); s.group(9, lbr(10, 10)); s.group(10, lbr(20, 10) + [(30, 1), (31, 2)])
        if form == 11: s.group(8, lbr(0, 3))
        if form == 0: s.group(1, [(4, 0xabc)]); s.group(0x1f, [(0, 5)])
        if form in (0, 5): s.b += b'\x02\x33'
        else: s.b += b'\x02\xb3'; s.ip(0x1d, ip)
    def overflow_over(s, ip):
        """packets were lost up to the instruction at `ip`; of the errata, the next one"""
        wrong = O.errata.pop(0); O.errata.append(wrong)
        if wrong == 'skd007': s.b.append(0x0f)
        s.b += b'\x02\xf3'; s.last = 0; s.stack = []
        if wrong == 'skd010': s.b += b'\x0c'; return s.ip(0x0d, ip)  # branches that nobody knows, up to an indirect one
        if wrong == 'apl11': s.b.append(0x01)
        if wrong == 'apl12': s.ip(0x1d, ip - 1)
        off = wrong in ('apl11', 'apl12')
        if off: s.time(); s.b += s.exec()
        s.ip(0x11 if off else 0x1d, ip)
    def call(s, back): s.stack = (s.stack + [back])[-64:]
    def ret(s, to):
        top = s.stack.pop() if s.stack else None
        if not O.no_retcomp and top == to: s.branch(1)
        elif not O.events_only: s.flush(); s.cyc(); s.ip(0x0d, to)  # never deferred: a decoder could not tell it from a compressed one

class Kernel:
    """follows kernel.S; conditional branches alternate by a counter"""
    def __init__(s, path):
        b = open(path, 'rb').read(); shoff, = struct.unpack_from('<Q', b, 40); es, n = struct.unpack_from('<HH', b, 58); s.sym = {}; s.k = {}; s.turn = 0; s.parts = []; s.bpf = None; s.calls = 0
        sh = [struct.unpack_from('<IIQQQQIIQQ', b, shoff + es * i) for i in range(n)]
        for h in sh:
            if h[1] == 2:
                st = sh[h[6]]
                for o in range(0, h[5], 24):
                    nm, _, _, _, v, _ = struct.unpack_from('<IBBHQQ', b, h[4] + o); e = b.index(b'\0', st[4] + nm); s.sym[b[st[4] + nm:e].decode()] = v
            if h[1] == 1 and h[2] & 4: s.parts.append((h[3], b[h[4]:h[4] + h[5]]))
        s.base, s.code = s.parts[0]
    def follow(s, E, ip, say, until=None):
        """from `ip` to the far return that leaves -> its address"""
        stack = []; steps = 0
        if O.poke and executed >= O.poke: s.poke(E)
        if B and executed >= (O.bpf_swap if s.bpf is B[0] else O.bpf_poke): s.load(E)
        if O.pip: E.flush(); E.b += E.pip()
        while True:
            base, code = next(((b, c) for b, c in (s.bpf.parts if s.bpf else []) if 0 <= ip - b < len(c)), (s.base, s.code))
            if ip not in s.k: s.k[ip] = classify(ip, code[ip - base:ip - base + 16])
            k, n, t = s.k[ip]; steps += 1; count(E)
            if len(E.b) - E.since > O.psb: E.now -= 1; E.psb(ip); E.now += 1
            if not 0 <= ip - base < len(code): raise SystemExit('the kernel went astray at %x' % ip)
            if until is not None and steps > until: return ip
            if k in (PLAIN, REP): ip += n; continue
            if k == FARRET: return ip
            if k == VMENTRY:
                t = s.sym['vmx_vmexit']; E.guest(ip, t, say); ip = t; continue
            if k == COND:
                s.turn += 1; taken = s.turn % 3 == 0; E.branch(taken)
                if not taken: ip += n; continue
            elif k == CALL: stack.append(ip + n); E.call(ip + n)
            elif k == ICALL: s.calls += 1; stack.append(ip + n); E.call(ip + n); t = s.bpf.sym['main'] if s.bpf and s.calls % 2 else s.sym['work']; E.tip(t)
            elif k == IJUMP: t = s.sym['work']; E.tip(t)
            elif k == RET: t = stack.pop(); E.ret(t)
            say(ip, t, NAMES[k]); ip = t
    def load(s, E):
        """the next BPF program, or a change of the last one"""
        E.flush(); E.now += 1; E.time(); E.now += 1; t = E.now - 1
        if s.bpf is B[-1]:
            O.bpf_poke = 1 << 60; at = s.bpf.sym['main']; p = next(i for i, part in enumerate(s.bpf.parts) if part[0] == at); old = s.bpf.parts[p][1]
            new = b'\xe8' + (s.sym['work'] - at - 5).to_bytes(4, 'little', signed=True); s.bpf.parts[p] = at, new + old[5:]; s.k.pop(at, None)
            records.append((t, rec(20, 1, struct.pack('<QHH', at, 5, 5) + old[:5] + new + bytes(2) + trailer(P[0].pid, t)))); return
        s.say(t, 1); s.bpf = B[-1]; s.k = {ip: k for ip, k in s.k.items() if ip < s.bpf.base}; s.say(t, 0)
    def say(s, t, gone):
        """the records of a BPF program that is loaded or gone"""
        for name_, at, code, tag in s.bpf.functions(): records.append((t, rec(17, 0, struct.pack('<QIHH', at, len(code), 1, gone) + name(b'bpf_prog_%s_%s' % (tag.hex().encode(), name_)) + trailer(P[0].pid, t))))
        records.append((t, rec(18, 0, struct.pack('<HHI', 1 + gone, 0, s.bpf.number) + s.bpf.tag + trailer(P[0].pid, t))))
    def functions(s):
        """of a BPF program: names, addresses, code, tags"""
        return [(n.encode(), a, next(c for b, c in s.original if b == a), zlib.crc32(n.encode() + s.tag).to_bytes(4, 'big') * 2) for n, a in sorted(s.sym.items(), key=lambda x: x[1]) if n in ('main', 'sub')]
    def info(s):
        """the entry of BPF_PROG_INFO: the machine code, addresses, sizes, tags"""
        f = s.functions(); code = b''.join(c for _, _, c, _ in f); d = code + bytes(-len(code) % 8); a = len(d); d += b''.join(struct.pack('<Q', at) for _, at, _, _ in f)
        z = len(d); d += b''.join(struct.pack('<I', len(c)) for _, _, c, _ in f); d += bytes(-len(d) % 8); g = len(d); d += b''.join(tag for _, _, _, tag in f); i = bytearray(192)
        struct.pack_into('<II8sIIQ', i, 0, 1, s.number, s.tag, len(code), 0, 0); i[64:68] = b'main'; struct.pack_into('<IIQQ', i, 104, len(f), len(f), a, z); struct.pack_into('<IQ', i, 180, len(f), g)
        return struct.pack('<IIQ', len(i), len(d), 1 << 0 | 1 << 3 | 1 << 4 | 1 << 8) + bytes(i) + d
    def poke(s, E):
        O.poke = 0; at = s.sym['work'] + 2; o = at - s.base; old = s.code[o:o + 2]; new = b'\xeb' + old[1:]
        assert old[0] == 0x75, 'no jnz'
        s.code = s.code[:o] + new + s.code[o + 2:]; s.k.pop(at, None); E.flush(); E.now += 1; E.time(); E.now += 1
        records.append((E.now - 1, rec(20, 1, struct.pack('<QHH', at, 2, 2) + old + new + trailer(P[0].pid, E.now - 1))))
K = Kernel(O.kernel) if O.kernel else None; GK = Kernel(O.guest_kernel) if O.guest_kernel else None
B = [Kernel(path) for path in O.bpf.split(',') if path]
for n, b in enumerate(B): b.number = 7 + n; b.tag = bytes([0xb0 + n] * 8); b.original = list(b.parts)
class Process:
    def __init__(s, path, pid, guest=False):
        s.pid = pid; s.ev = list(events(path)); s.guest = guest
        if guest and not GK:
            parts = [[]]; [parts.append([]) if e[0] in ('sys', 'sig') else parts[-1].append(e) for e in s.ev]; best = max(parts, key=len)
            s.ev = [e for part in parts for e in part if part is best or e[0] != 'ip']
        s.memory = []; s.loads = []; s.at = 0; s.round = 0; s.kinds = {}; s.prev = None; s.off = 'start'; s.mapped = P[0].mapped if O.one_process and P else set(); s.ready = T0; s.e = Encoder(); s.handler = None; s.mode = None; s.traced = []
    def jitted(s, at, code):
        for start, end, _, known, _ in s.memory:
            if start <= at < end: known.extend(bytes(max(at - start + len(code) - len(known), 0))); known[at - start:at - start + len(code)] = code
class Cpu:
    def __init__(s, n): s.n = n; s.now = T0; s.e = Encoder()
P = []; [P.append(Process(p, 1000 + i)) for i, p in enumerate(O.steps)]; G = [Process(p, 500 + i, True) for i, p in enumerate(O.guest_steps.split(',')) if p]; C = [Cpu(i) for i in range(O.cpus)]
truth = open(O.truth or O.out + '.truth', 'w+'); records = []; executed = 0
def rec(t, misc, body): return struct.pack('<IHH', t, misc, 8 + len(body)) + body
def name(s): s = s + b'\0'; return s.ljust((len(s) + 7) // 8 * 8, b'\0')
def both(tid): return (1000 if O.one_process and 1000 <= tid < 1000 + len(P) else tid), tid
def trailer(tid, t, cpu=0, i=200): return struct.pack('<IIQIIQ', *both(tid), t, cpu, 0, i + cpu)
def count(E): global executed; executed += 1; E.now += 1
def mode_of(text):
    """a 32-bit process has nothing above 4 GB"""
    return CS_MODE_64 if any(int(l.split('-')[0], 16) >> 32 for l in text.splitlines() if 'vsyscall' not in l) else CS_MODE_32
def maps(p, c, text, t):
    p.memory = []
    for l in text.splitlines():
        f = l.split(None, 5)
        if len(f) < 5 or 'x' not in f[1]: continue
        if len(f) == 5: p.memory.append([int(x, 16) for x in f[0].split('-')] + [t, bytearray(), p.pid]); p.loads.append(p.memory[-1])
        a, b = (int(x, 16) for x in f[0].split('-')); path = f[5] if len(f) > 5 else '//anon'; key = a, b, path
        if key in p.mapped or path == '[vsyscall]': continue
        p.mapped.add(key); p.traced += [(o + a - int(f[2], 16), n) for o, n, file in FILTERS if file == path]; ma, mi = (int(x, 16) for x in f[3].split(':'))
        records.append((t, rec(10, 5 if p.guest else 2, struct.pack('<IIQQQIIQQII', *both(p.pid), a, b - a, int(f[2], 16), ma, mi, zlib.crc32(path.encode()), 0, 5, 2) + name(path.encode()) + trailer(p.pid, t, c.n, 600 if p.guest else 200))))
def place(a): return '-' if a is None else '%x' % a
def execute(p, c, E, ip, nxt):
    """the instruction at ip was executed; nxt is the address of the next one, or None at the end, at a signal or a system call that does not come back"""
    def say(a, b, k): truth.write('%s %s %s %d %d\n' % (place(a), place(b), k, p.pid, c.n))
    if ip not in p.kinds: raise SystemExit('no code for %x' % ip)
    k, n, target = p.kinds[ip]; count(E)
    if O.ptw and executed % O.ptw == 0:
        E.flush(); E.b += bytes([2, 0xb2 if O.ptw_ip else 0x32]) + executed.to_bytes(8, 'little')
        if O.ptw_ip: E.ip(0x1d, ip)
        truth.write('# ptw %x %d %d\n' % (executed, p.pid, c.n))
    if k == PLAIN and nxt is not None and not O.defer:
        if executed >= E.next_power: E.next_power += O.power; E.power(nxt)
        if executed >= E.next_event:
            E.next_event += O.event
            if E.event(nxt): truth.write('%x - event %d %d\n' % (nxt, p.pid, c.n)); p.off = 'event'
            return
        if executed >= E.next_pebs: E.next_pebs += O.pebs; E.pebs(nxt); truth.write('# pebs %d %d\n' % (p.pid, c.n))
        if executed >= E.next_tsx and not ('bdm64' in O.errata and E.transactions % 4 == 3):
            E.next_tsx += O.tsx; E.tsx(nxt)
            if E.transactions % 4 == 0: say(nxt, nxt, 'abort')
    if k in (PLAIN, REP): return
    if k == SYSCALL:
        if not K: E.end(); truth.write('%x - syscall %d %d\n' % (ip, p.pid, c.n)); p.off = 'sys'; return
        to = K.sym['entry_SYSCALL_64']; E.tip(to); say(ip, to, 'syscall')
        if nxt is None: at = K.follow(E, to, say, 3); E.end(at); truth.write('%x - exit %d %d\n' % (at, p.pid, c.n)); executed_back(E); return
        at = K.follow(E, to, say); E.tip(nxt); say(at, nxt, 'sysret'); return
    if nxt is None: return
    if k in (IJUMP, ICALL) and 'bdm64' in O.errata and executed >= E.next_tsx and E.transactions % 4 == 3:
        if k == ICALL: E.call(ip + n)
        E.next_tsx += O.tsx; E.tip(ip - 1); E.tsx(nxt); say(ip, nxt, NAMES[k]); say(nxt, nxt, 'abort'); return
    taken = True
    if k == COND: taken = nxt != ip + n; E.branch(taken)
    elif k in (CALL, ICALL):
        if k == ICALL or target != ip + n: E.call(ip + n)
        if k == ICALL: E.tip(nxt)
    elif k == IJUMP: E.tip(nxt)
    elif k == RET: E.ret(nxt)
    if taken: say(ip, nxt, NAMES[k])
def leave(p, c, E, ip, to):
    """the branch at ip leaves what is traced"""
    k, n, target = p.kinds[ip]; count(E)
    if k in (CALL, ICALL): E.call(ip + n)
    elif k == RET and E.stack: E.stack.pop()
    E.flush(); E.cyc(); E.on = False; p.off = 'enter'
    if 'skl014' in O.errata and k in (JUMP, CALL): E.b.append(0x01)
    else: E.ip(0x01, to)
    truth.write('%x %x leave %d %d\n' % (ip, to, p.pid, c.n))
def executed_back(E):
    global executed; executed -= 1; E.now -= 1  # the last one was not executed: tracing ended before it
def turn(p, c, budget):
    """runs p on c for `budget` instructions -> False at its end"""
    E = p.e if O.per_thread else c.e; E.now = c.now = max(c.now, E.now); ev = p.ev
    try:
        while True:
            if p.at >= len(ev):
                p.round += 1
                if p.prev is not None and p.kinds[p.prev][0] == SYSCALL: execute(p, c, E, p.prev, None)
                if E.on and not E.lost: E.end(p.prev); truth.write('%x - end %d %d\n' % (p.prev, p.pid, c.n))  # ended before this instruction
                p.prev = None
                if p.round >= O.repeat: return False
                p.at = 0; p.off = 'start'; continue
            e = ev[p.at]; p.at += 1
            if e[0] == 'code': p.kinds[e[1]] = classify(e[1], e[2], p.mode); p.jitted(e[1], e[2])
            elif e[0] == 'maps': p.mode = p.mode or mode_of(e[1]); maps(p, c, e[1], T0 - 60 if p.prev is None and not p.kinds else E.now) if p.round == 0 else None
            elif e[0] == 'sys': pass
            elif e[0] == 'sig':
                if p.prev is not None:
                    # the last instruction was completed; the handler begins in place of the next one, which is that of the interrupted code
                    nxt = interrupted(p); execute(p, c, E, p.prev, nxt)
                    if K and E.on:
                        to = K.sym['asm_common_interrupt']; E.flush(); E.cyc(); E.ip(0x1d, nxt); E.ip(0x0d, to)
                        def say(a, b, k): truth.write('%s %s %s %d %d\n' % (place(a), place(b), k, p.pid, c.n))
                        say(nxt, to, 'interrupt'); p.handler = K.follow(E, to, say)
                    elif E.on: E.end(nxt); truth.write('%x - signal %d %d\n' % (nxt, p.pid, c.n)); p.off = 'sig'
                    p.prev = None
            else:
                ip = e[1]
                if E.lost:
                    if p.kinds[ip][0] == REP and p.at < len(ev) and ev[p.at] == e: continue
                    E.lost -= 1; E.now += 1
                    if E.lost or p.kinds[ip][0] != PLAIN: E.lost = max(E.lost, 1); continue
                    E.overflow_over(ip); truth.write('- %x lost %d %d\n' % (ip, p.pid, c.n)); p.prev = ip; continue
                if p.prev is not None and E.psbs >= E.next_ovf and not p.off and p.kinds[p.prev][0] != SYSCALL:
                    execute(p, c, E, p.prev, None); E.flush(); E.next_ovf += O.ovf; E.lost = 500; p.prev = None; continue
                if FILTERS and not any(o <= ip < o + n for o, n in p.traced):
                    if p.prev is not None and E.on: leave(p, c, E, p.prev, ip)
                    p.prev = None; E.now += 1; continue
                if p.handler is not None: E.tip(ip); truth.write('%x %x iret %d %d\n' % (p.handler, ip, p.pid, c.n)); p.handler = None
                if p.prev is not None:
                    if p.kinds[p.prev][0] == REP and ip == p.prev: continue
                    execute(p, c, E, p.prev, ip)
                if p.off: E.begin(ip, p.mode, p.off in ('slice', 'start')); truth.write('- %x %s %d %d\n' % (ip, 'start', p.pid, c.n)); p.off = None
                # At a PSB next to a change of the interrupt flag, perf 7.3 takes tracing for begun anew.
                elif len(E.b) - E.since > O.psb and (E.tnt or len(E.b) != E.flagged): E.psb(ip)
                E.mtc(); p.prev = ip; budget -= 1
                if O.sample and executed >= next_sample[0] and not (O.aux_sample and p.off): next_sample[0] += O.sample; sample(p, c, ip, E)
                if budget <= 0: # preempted before this instruction
                    E.end(ip); truth.write('%x - preempted %d %d\n' % (ip, p.pid, c.n)); p.prev = None; p.at -= 1; p.off = 'slice'; return True
    finally: c.now = E.now
def interrupted(p):
    # only used for signals that interrupt user code: the fall-through or the direct target
    k, n, target = p.kinds[p.prev]
    return target if k in (JUMP, CALL) else p.prev + n
def switch(p, c, out):
    switches.append((p, c, out, c.now)); switched(p, c, out, c.now)
switches = []; next_sample = [O.sample]
def sample(p, c, ip, E):
    global sampled_truth
    t = E.now; aux = b''
    if O.aux_sample:
        E.end(ip); truth.write('%x - sample %d %d\n' % (ip, p.pid, c.n)); aux = bytes(E.b[-O.aux_sample:]); aux += bytes(-len(aux) % 8); aux = struct.pack('<Q', len(aux)) + aux
        E.now += 1; t = E.now; sampled_truth = truth.tell(), executed; E.begin(ip, p.mode); truth.write('- %x start %d %d\n' % (ip, p.pid, c.n))
    records.append((t, rec(9, 1 if ip >> 63 else 2, struct.pack('<QQIIQIIQ', 400 + c.n, ip, *both(p.pid), t, c.n, 0, O.sample) + aux)))
def switched(p, c, out, t):
    if O.sched_switch:
        # the fields of sched_switch: common (8 bytes), prev_comm, prev_pid, prev_prio, prev_state, next_comm, next_pid, next_prio
        prev, to = (p.pid, 0) if out else (0, p.pid)
        raw = struct.pack('<HBBi16siiq16sii', SCHED_SWITCH, 0, 0, prev, b'', prev, 120, 0, b'', to, 120)
        raw += bytes(-(len(raw) + 4) % 8)
        records.append((t, rec(9, 1, struct.pack('<QQIIQII', 300 + c.n, 0xffffffff81000000, *both(prev), t, c.n, 0) + struct.pack('<I', len(raw)) + raw)))
    elif O.cpus > 1 or K: records.append((t, rec(15, 0x2000 if out else 0, struct.pack('<II', 0, 0) + trailer(p.pid, t, c.n))))
    else: records.append((t, rec(14, 0x2000 if out else 0, trailer(p.pid, t, c.n))))
SCHED_SWITCH = 300
def format():
    """sched:sched_switch as tracefs describes it"""
    fields = ['unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;', 'unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;',
              'unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;', 'int common_pid;\toffset:4;\tsize:4;\tsigned:1;', '']
    own = [('char prev_comm[16]', 8, 16, 0), ('pid_t prev_pid', 24, 4, 1), ('int prev_prio', 28, 4, 1), ('long prev_state', 32, 8, 1),
           ('char next_comm[16]', 40, 16, 0), ('pid_t next_pid', 56, 4, 1), ('int next_prio', 60, 4, 1)]
    fields += ['%s;\toffset:%d;\tsize:%d;\tsigned:%d;' % f for f in own]
    lines = ''.join('\tfield:%s\n' % f if f else '\n' for f in fields)
    return ('name: sched_switch\nID: %d\nformat:\n%s\nprint fmt: "%%d ==> %%d", REC->prev_pid, REC->next_pid\n' % (SCHED_SWITCH, lines)).encode()
def tracing_data():
    """the layout of feature TRACING_DATA"""
    def sized(b): return struct.pack('<Q', len(b)) + b
    page = b'\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n'
    return (b'\x17\x08\x44tracing0.6\0' + bytes([0, 8]) + struct.pack('<I', 4096) + b'header_page\0' + sized(page) + b'header_event\0' + sized(b'')
            + struct.pack('<II', 0, 1) + b'sched\0' + struct.pack('<I', 1) + sized(format()) + struct.pack('<IIQ', 0, 0, 0))
for p in P:
    t = T0 - 100; pid, tid = both(p.pid)
    if pid != tid: records.append((t, rec(7, 0, struct.pack('<IIIIQ', pid, pid, tid, pid, t) + trailer(pid, t))))
    records.append((t, rec(3, 1 << 13, struct.pack('<II', pid, tid) + name(b'prog%d' % p.pid) + trailer(p.pid, t))))
    if O.jit: records.append((t, rec(10, 2, struct.pack('<IIQQQIIQQII', pid, tid, 0x100000, 4096, 0, 0, 0, 0, 0, 5, 2) + name(b'/tmp/jit-%d.dump' % pid) + trailer(p.pid, t))))
for p in G: records.append((T0 - 100, rec(3, 1 << 13 | 5, struct.pack('<II', p.pid, p.pid) + name(b'guest%d' % p.pid) + trailer(p.pid, T0 - 100, 0, 600))))
if B: K.bpf = B[0]; K.say(0, 0)
if len(P) == 1: C[0].now -= 50; switch(P[0], C[0], False); C[0].now += 50; turn(P[0], C[0], 1 << 62)
else:
    alive = list(P)
    while alive:
        c = min(C, key=lambda c: c.now); p = alive.pop(0)
        c.now = max(c.now, p.ready) + 10; switch(p, c, False); c.now += 10
        more = turn(p, c, O.slice or 10000); c.now += 10; switch(p, c, True); p.ready = c.now
        if more: alive.append(p)
E = [p.e for p in P] if O.per_thread else [c.e for c in C]
for e in E: e.flush()
if O.aux_sample: truth.truncate(sampled_truth[0]); truth.seek(sampled_truth[0]); executed = sampled_truth[1]
executed -= E[0].begins[2]; truth.write('instructions %d\n' % executed)
if O.skip: truth.seek(E[0].begins[1]); rest = truth.read(); truth.seek(0); truth.write(rest); truth.truncate()
if O.jit:
    # The header: its times are ticks of the counter. Then JIT_CODE_LOAD: pid, tid, address twice, size, number, name, code.
    load = lambda n, start, t, code, pid: struct.pack('<IIQIIQQQQ', 0, 64 + len(code), t, pid, pid, start, start, len(code), n) + b'jitted%d\0' % n + code
    with open(O.jit, 'wb') as f: f.write(struct.pack('<4s5IQQ', b'DTiJ', 1, 40, 62, 0, P[0].pid, T0 - 90, 1) + b''.join(load(n, start, t, bytes(code), pid) for n, (start, _, t, code, pid) in enumerate(l for p in P for l in p.loads if l[3])))
truth.close(); now = max(c.now for c in C); bufs = []
span = (now - T0 + 200 + (1 << 17)) >> 17 << 17  # a multiple of 2^17 ticks: MTC and TMA stay as they are
for k in range(1, O.copies):
    for p, c, out, t in switches: switched(p, c, out, t + k * span)
for e in E:
    aux = bytes(e.b)[e.begins[0]:O.cut or None]
    if O.copies > 1:
        one = bytearray(aux); out = []
        at = [x for x in e.tsc if x + 7 <= len(one)]; times = [int.from_bytes(one[x:x + 7], 'little') for x in at]
        for k in range(O.copies):
            for x, t in zip(at, times): one[x:x + 7] = (t + k * span).to_bytes(7, 'little')
            out.append(bytes(one))
        aux = b''.join(out)
    bufs.append(aux + b'\0' * (-len(aux) % 8))
now += (O.copies - 1) * span
# the file
IP, TID, TIME, CPU, IDENT = 1, 2, 4, 128, 1 << 16; ST = IP | TID | TIME | CPU | IDENT
def attr(type, config, period, flags): return struct.pack('<IIQQQQQ', type, 128, config, period, ST, 4, flags).ljust(128, b'\0')
ALL, DIS, XHV = 1 << 18, 1, 1 << 6; XK = 0 if K else 1 << 5
config = (0x401 if O.events_only else 0x2401) | (0x800 if O.no_retcomp else 0) | (0x200 | 6 << 14 if O.mtc else 0) | (2 if O.cyc else 0) | (0x1000 if O.ptw else 0) | (0x10 if O.power else 0) | (1 << 31 if O.event else 0)  # pt, tsc, branch
n = len(P) if O.per_thread else O.cpus; ids = [[100 + i for i in range(n)], [200 + i for i in range(n)]]
attrs = [attr(8, config, 1, DIS | ALL | XK | XHV), attr(1, 9, 1, ALL | XK | XHV | 1 << 8 | 1 << 9 | 1 << 13 | 1 << 23 | 1 << 24 | 1 << 26)]
if O.sched_switch:
    ids.append([300 + i for i in range(n)]); attrs[1] = attrs[1][:40] + struct.pack('<Q', struct.unpack_from('<Q', attrs[1], 40)[0] & ~(1 << 26)) + attrs[1][48:]
    attrs.append(struct.pack('<IIQQQQQ', 2, 128, SCHED_SWITCH, 1, ST | 1 << 10, 4, ALL).ljust(128, b'\0'))
if O.sample: ids.append([400 + i for i in range(n)]); attrs.append(struct.pack('<IIQQQQQ', 0, 128, 0, O.sample, ST | 1 << 8 | (1 << 20 if O.aux_sample else 0), 4, ALL | XK | XHV).ljust(112, b'\0') + struct.pack('<I12x', O.aux_sample))
if O.pebs:
    pebs = [(0, 0, 1000, O.sample_type, 500, 0xff03ff)] + ([(0, 1, 3000, 0x1040800, 600, 0xffffffff00ff03ff)] if O.hw_ids else [])
    for kind, cfg, period, parts, first, registers in pebs:
        ids.append([first + i for i in range(n)])
        attrs.append(struct.pack('<IIQQQQQII8xQQQIIQ', kind, 128, cfg, period, ST | 1 << 8 | parts, 4, ALL | XK | XHV | 3 << 15 | 1 << 31, 0, 0, 0, O.branch_sample_type, 0, 0, 0, registers).ljust(128, b'\0'))
        if O.hw_ids: records += [(T0 - 30, rec(21, 0, struct.pack('<Q', first // 100 - 5) + trailer(P[i if O.per_thread else 0].pid, T0 - 30, 0 if O.per_thread else i, first + (i if O.per_thread else 0)))) for i in range(n)]
if G: ids.append([600]); attrs.append(attr(1, 9, 1, ALL | XHV | 1 << 8 | 1 << 9 | 1 << 13 | 1 << 19 | 1 << 23 | 1 << 24 | 1 << 26))
where = lambda i: ((1 << 64) - 1, P[i].pid) if O.per_thread else (i, (1 << 64) - 1)
data = rec(69, 0, struct.pack('<Q', (len(ids) - bool(G)) * n) + b''.join(struct.pack('<QQQQ', own[i], i, *where(i)) for own in ids[:len(ids) - bool(G)] for i in range(n)))
if G: data += rec(69, 0, struct.pack('<QQQQQQQ', 1, 600, 0, (1 << 64) - 1, P[0].pid, P[0].pid, 0))
data += rec(79, 0, struct.pack('<QQQQQBB6x', 0, 1, 0, 0, (1 << 64) - 1, 1, 0))
priv = [8, 0, 1, 0, 1, 0x400, 0x800, 0 if O.per_thread else 1 if O.sched_switch else 3 if O.cpus > 1 or K else 2, 1 if O.snapshots else 0, 0 if O.per_thread else 1, 0x200, 0x3c000, 2 if O.mtc else 0, 1 if O.mtc else 0, 2, 0x20]
text = O.filter.encode(); padding = bytes(8 - len(text) % 8) if text else b''
data += rec(70, 0, struct.pack('<II', 1, 0) + struct.pack('<%dQ' % len(priv), *priv) + struct.pack('<Q', len(text)) + text + padding + (struct.pack('<Q', 1) if O.event else b''))
if K: data += rec(1, 1, struct.pack('<IIQQQ', 0xffffffff, 0, K.base, K.sym['_end'] - K.base, K.base) + name(b'[kernel.kallsyms]_text') + trailer(0xffffffff, 0))
if GK: data += rec(1, 4, struct.pack('<IIQQQ', 0xffffffff, 0, GK.base, GK.sym['_end'] - GK.base, GK.base) + name(b'[kernel.kallsyms]_text') + trailer(0xffffffff, 0, 0, 600))
for i, b in enumerate(bufs):
    pid = P[i].pid if O.per_thread else P[0].pid; c = 0 if O.per_thread else i
    records.append((T0 - 40, rec(12, 0, struct.pack('<II', *both(pid)) + trailer(pid, T0 - 40, c, 100 + (i if O.per_thread else 0)))))
    if not O.aux_sample: records.append((now + 100, rec(11, 0, struct.pack('<QQQ', 0, len(b), 0) + trailer(pid, now + 100, c, 100 + (i if O.per_thread else 0)))))
records.sort(key=lambda r: r[0])
idb = b''.join(struct.pack('<Q', x) for i in ids for x in i); ab = b''.join(a + struct.pack('<QQ', 104 + 8 * n * k, 8 * len(ids[k])) for k, a in enumerate(attrs)); start = 104 + len(idb) + len(ab)
data += b''.join(r for _, r in records); index = []
pieces = [] if O.aux_sample else [(i, 0, b) for i, b in enumerate(bufs)]
if O.snapshots:
    pieces = []
    for i, b in enumerate(bufs):
        for k in range(O.snapshots):
            end = min((x for x in E[i].stops if x >= len(b) * (k + 1) // O.snapshots), default=len(b)); first = max(0, end - O.ring); piece = b[first:end]; pieces.append((i, first, piece + b'\0' * (-len(piece) % 8)))
for i, first, b in pieces:
    index.append((start + len(data), 48)); cpu, tid = (0xffffffff, P[i].pid) if O.per_thread else (i, 0xffffffff)
    data += struct.pack('<IHHQQQIIII', 71, 0, 48, len(b), first, 0x1234, i, tid, cpu, 0) + b
data += rec(68, 0, b'')
def build_id(path):
    """of a 64-bit program: the description of its note of type 3 by GNU"""
    b = open(path, 'rb').read(); at = b.index(b'\x03\0\0\0GNU\0'); n, = struct.unpack_from('<I', b, at - 4)
    return b[at + 8:at + 8 + n]
def build_id_entry(misc, own, path):
    """an entry of feature BUILD_ID, for what the guest of the first process mapped"""
    body = struct.pack('<i20sB3x', P[0].pid, own, len(own)) + name(path.encode()); return struct.pack('<IHH', 0, 0x8000 | misc, 8 + len(body)) + body
def text(s): b = s.encode() + b'\0'; b = b.ljust((len(b) + 63) // 64 * 64, b'\0'); return struct.pack('<I', len(b)) + b
desc = struct.pack('<II', len(attrs), 128)
for a, i, nm in zip(attrs, ids, ['intel_pt//' + ('' if K else 'u'), 'dummy:' + ('HG' if K else 'u')] + ['sched:sched_switch'] * O.sched_switch + ['cycles' + ('' if K else ':u')] * bool(O.sample) + ['cycles:pppu', 'instructions:pppu'] * bool(O.pebs) + ['dummy:G'] * bool(G)): desc += a + struct.pack('<I', len(i)) + text(nm) + b''.join(struct.pack('<Q', x) for x in i)
feats = {3: text('host'), 4: text('6.6'), 5: text('6.6'), 6: text('x86_64'), 7: struct.pack('<II', O.cpus, O.cpus), 9: text('GenuineIntel,' + O.cpu), 12: desc, 18: struct.pack('<Q', len(index)) + b''.join(struct.pack('<QQ', *x) for x in index)}
if O.sched_switch: feats[1] = tracing_data()
if B: feats[25] = struct.pack('<I', len(B)) + b''.join(b.info() for b in B)
if G: feats[2] = b''.join(build_id_entry(misc, build_id(file), own) for misc, file, own in sorted({(5, f, f) for p in G for _, _, f in p.mapped if f.startswith('/')}) + [(4, O.guest_kernel, '[kernel.kallsyms]')] * bool(GK))
end = start + len(data); table = body = b''; q = end + 16 * len(feats)
for k in sorted(feats): table += struct.pack('<QQ', q, len(feats[k])); body += feats[k]; q += len(feats[k])
head = b'PERFILE2' + struct.pack('<QQQQQQQQ', 104, 144, 104 + len(idb), len(ab), start, len(data), 0, 0) + struct.pack('<4Q', sum(1 << k for k in feats), 0, 0, 0)
open(O.out, 'wb').write(head + idb + ab + data + table + body)
print('%d instructions, %s bytes of trace, %d PSBs' % (executed, '+'.join(str(len(b)) for b in bufs), sum(e.psbs for e in E)))
