#!/usr/bin/env python3
"""Compares perf with `perfx shim` on public command lines and recordings: which lines give the same bytes.

usage: dropin.py [--perf perf-new] [--only REGEX] [--show REGEX] [--keep DIR] PERFX LINES.tsv RECORDING…

LINES has a command line in each row: `perf TOOL`, the options, and what reads the output. The recording comes after each
`-i` without a value, and is otherwise perf.data in the current folder; `-i -` and `inject` without `-i` read it from a
pipe. The shim finds no other perf in PATH. A pair of a line and a recording counts as

  bytes    the same standard output and exit code, or both fail (with the same code, if the shim leaves it)
  figures  the same numbers in the same order
  rule     the same after a rule of docs/guide/look.md or inject.md (RULES, FAILS)
  refused  the shim leaves it to another perf
  wrong    anything else

and as noisy if the shim writes to standard error where perf does not. Outputs of inject are compared as perf script and
perf report show them. --show prints the first difference of lines that match.
"""
import argparse, collections, hashlib, os, pickle, re, shlex, shutil, subprocess, tempfile

parser = argparse.ArgumentParser()
parser.add_argument("perfx")
parser.add_argument("lines")
parser.add_argument("recordings", nargs="+")
parser.add_argument("--perf", default="perf-new")
parser.add_argument("--only", default="")
parser.add_argument("--show")
parser.add_argument("--keep")
args = parser.parse_args()
KINDS = ("bytes", "figures", "rule", "refused", "wrong")
REFUSED = b"no other perf in PATH"
# Messages of perf about work that it refuses or fails at, and that perfx does, according to the guide.
FAILS = (
    b"no first/last sample time",
    b"tracing data size mismatch",
    b"piped event processing failed",
    b"unexpected end of event stream",
    b"Remove -C option to proceed",
    b"too large. Consider raising MAX_NR_CPUS",
)
NUMBER = re.compile(rb"0x[0-9a-f]+|[0-9a-f]*[0-9][0-9a-f]*")
perf = shutil.which(args.perf)
folder = args.keep or tempfile.mkdtemp(prefix="perfx-dropin-")
shim = os.path.join(folder, "bin")
os.makedirs(shim, exist_ok=True)
os.makedirs(os.path.join(folder, "perf"), exist_ok=True)
subprocess.run([os.path.abspath(args.perfx), "shim", "-q", shim], check=True)


def blanks(text):
    return re.sub(rb"[ \t]+", b" ", text)


# What docs/guide/look.md says that perf and perfx show differently, each with the text that is the same in both.
RULES = [
    ("vdso", lambda text: re.sub(rb"/tmp/perf-vdso\.so-\w{6}", b"[vdso]", text)),
    ("functions of the vdso", lambda text: re.sub(rb" [^ ]+ \(\[vdso\]\)", b" ([vdso])", text)),
    ("functions of the vdso in perf report", lambda text: re.sub(rb"(\[vdso\]|perf-vdso\.so-\w+) +\[\.\] \S+", b"[vdso]", text)),
    ("functions of the vdso without its name", lambda text: re.sub(rb" __vdso_[^ \n]+", b" [unknown]", text)),
    ("instructions without a trace", lambda text: re.sub(rb"(?m)( ilen: \d+)?( insn:( [0-9a-f]{2})+)?$", b"", text)),
    ("kernel offsets", lambda text: re.sub(rb"(\[kernel[^ ]*\])\+0x[0-9a-f]+", rb"\1", text)),
    ("PMUs of this machine", lambda text: re.sub(rb"(type(?::| =) \d+) \([a-z]\w*\)", rb"\1", text)),
    ("tips", lambda text: re.sub(rb"(?m)^# Tip: .*\n", b"", text)),
    ("folders of source files", lambda text: re.sub(rb"(?m)^  [^ ]*/([^/ ]+:\d+)$", rb"  \1", text)),
    ("user stacks without files", lambda text: re.sub(rb"(?m): $\n\t.*\n$", b": \n", text)),
    ("code without a line", lambda text: re.sub(rb"(?m)^  (:0|[^ :]*\[[0-9a-f]+\])$", b"  :0", text)),
    ("padding of data_src", blanks),
    ("order of traces, or of the vdso", lambda text: b"\n".join(sorted(text.split(b"\n")))),
    ("aliases", lambda text: re.sub(rb"(?m)^(\s+[0-9a-f]+) [^(\n]*\(", rb"\1 (", text)),
]


def words_of(options, path):
    """The words, and the recording for standard input if they read it."""
    words, stdin = [], None
    given = shlex.split(options)
    for at, word in enumerate(given):
        words.append(word)
        if word in ("-i", "--input"):
            following = given[at + 1] if at + 1 < len(given) else "-f"
            if following == "-":
                stdin = path
            elif following.startswith("-"):
                words.append(path)
    return words, stdin


def run(program, command, options, path, cwd, shim=False):
    tool = command.split()[1:]
    words, stdin = words_of(options, path)
    if tool[-1] == "inject" and "-i" not in words:
        stdin = path
    for name in os.listdir(cwd):
        os.remove(os.path.join(cwd, name)) if not os.path.isdir(os.path.join(cwd, name)) else shutil.rmtree(os.path.join(cwd, name))
    shutil.copy2(path, os.path.join(cwd, "perf.data"))
    shutil.copy("/bin/true", os.path.join(cwd, "ELF"))
    env = {"HOME": cwd, "PATH": os.path.dirname(program) if shim else os.environ["PATH"], "TZ": "UTC", "LC_ALL": "C"}
    # perf reads no file from a pipe.
    copy = [os.path.abspath(args.perfx), "copy", "-q", "--to", "pipe", stdin]
    source = subprocess.Popen(copy, stdout=subprocess.PIPE).stdout if stdin else subprocess.DEVNULL
    ran = subprocess.run([program, *tool, *words], cwd=cwd, env=env, stdin=source, capture_output=True, timeout=120)
    out = ran.stdout
    if tool[-1] == "inject":
        made = os.path.join(cwd, "out")
        if "-o" not in words:
            with open(made, "wb") as file:
                file.write(out)
        shown = [["script", "-i", made], ["report", "--stdio", "-i", made]] if os.path.exists(made) else []
        shown = [shown_by_perf(show, cwd, {**env, "PATH": os.environ["PATH"]}) for show in shown]
        out = b"".join(re.sub(rb"(?m)^#.*\n", b"", text) for text in shown)
    return ran.returncode, out, ran.stderr


def shown_by_perf(words, cwd, env):
    """The text that perf shows for an output. Runs perf up to three times, because it crashes at random."""
    for _ in range(3):
        ran = subprocess.run([perf, *words], cwd=cwd, env=env, capture_output=True)
        if ran.returncode >= 0:
            break
    return ran.stdout


def run_perf(command, options, path, cwd):
    key = hashlib.sha256(f"{perf} {command} {options} {path}".encode()).hexdigest()
    kept = os.path.join(folder, "perf", key)
    if not os.path.exists(kept):
        with open(kept + ".new", "wb") as file:
            pickle.dump(run(perf, command, options, path, cwd), file)
        os.rename(kept + ".new", kept)
    with open(kept, "rb") as file:
        return pickle.load(file)


def judged(theirs, ours):
    (their_code, theirs, their_errors), (our_code, ours, errors) = theirs, ours
    if REFUSED in errors:
        return ("bytes" if their_code == our_code else "refused"), ""
    if our_code == 0 and any(failure in their_errors for failure in FAILS):
        return "rule", "perf fails"
    if (their_code == 0) != (our_code == 0):
        return "wrong", f"exit codes {their_code} and {our_code}"
    if theirs == ours:
        return "bytes", ""
    for name, rule in RULES:
        theirs, ours = rule(theirs), rule(ours)
        if theirs == ours:
            return "rule", name
    if NUMBER.findall(theirs) == NUMBER.findall(ours):
        return "figures", ""
    return "wrong", ""


def first_difference(theirs, ours):
    theirs, ours = theirs.split(b"\n"), ours.split(b"\n")
    for number, (their, our) in enumerate(zip(theirs + [b"<end>"], ours + [b"<end>"])):
        if their != our:
            return f"line {number + 1}\n      perf  {their[:300]}\n      perfx {our[:300]}"
    return "the length"


totals = collections.defaultdict(collections.Counter)
names = [os.path.basename(path).removesuffix(".data") for path in args.recordings]
marks = {"bytes": "=", "figures": "~", "rule": "r", "refused": "-", "wrong": "X"}
print("recordings:", " ".join(names))
with tempfile.TemporaryDirectory(prefix="perfx-dropin-") as cwd:
    for line in open(args.lines):
        command, options = line.rstrip("\n").split("\t")[:2]
        if not re.search(args.only, f"{command} {options}"):
            continue
        row, notes = "", []
        for name, path in zip(names, map(os.path.abspath, args.recordings)):
            theirs = run_perf(command, options, path, cwd)
            ours = run(os.path.join(shim, "perf"), command, options, path, cwd, shim=True)
            kind, why = judged(theirs, ours)
            noisy = bool(ours[2]) and not theirs[2] and kind != "refused"
            tool = command.split()[-1]
            totals[tool][kind] += 1
            totals[tool]["noisy"] += noisy
            row += marks[kind] + ("!" if noisy else "")
            if args.show and re.search(args.show, f"{name} {command} {options} {kind}{' noisy' * noisy}"):
                notes.append(f"   {name}: {kind} {why}; codes {theirs[0]} {ours[0]}; {first_difference(theirs[1], ours[1])}")
                notes.append(f"      perf says  {theirs[2][:300]}\n      perfx says {ours[2][:300]}")
        print(f"{row:<{len(names) + 2}} {command} {options}", *notes, sep="\n")
print(f"\n{'tool':<14}", *(f"{kind:>9}" for kind in (*KINDS, "noisy")))
for tool, counts in totals.items():
    share = {kind: f"{100 * counts[kind] / sum(counts[known] for known in KINDS):.1f} %" for kind in (*KINDS, "noisy")}
    print(f"{tool:<14}", *(f"{share[kind]:>9}" for kind in share))
