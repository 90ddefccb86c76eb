#!/usr/bin/env python3
"""craft.py: writes crafted/ (files made by hand, byte by byte) and README.md.

Uses only Python's standard library and no code of the project, so that a mistake cannot cancel itself out. The output
is the same every time; only the be-* files depend on recorded/. `check.py` reads every file with several versions of
perf; README.md shows the results.
"""
import os
import shutil
import sys

sys.dont_write_bytecode = True
here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)

from crafting import common, contents, intel_pt, layout, scheduler, spe, streams, validate  # noqa: E402


def write(path, content):
    if isinstance(content, dict):
        os.makedirs(path, exist_ok=True)
        for name, part in content.items():
            os.makedirs(os.path.dirname(os.path.join(path, name)), exist_ok=True)
            write(os.path.join(path, name), part)
        return
    with open(path, "wb") as f:
        f.write(content)
    os.chmod(path, 0o644)


def table(path):
    """A file of lines with tabs -> {first field: other fields}"""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as f:
        return {line.split("\t")[0]: line.rstrip("\n").split("\t")[1:] for line in f}


def cell(s):
    return s.replace("|", "\\|")


def code(s):
    return "`` " + s.replace("`` ", "") + " ``" if "`" in s else "`" + s + "`"


def readme():
    recorded = table(os.path.join(here, "recorded", "INDEX.tsv"))
    verdicts = table(os.path.join(here, "VERDICTS.tsv"))
    out = [
        "# Recordings for the tests", "",
        "Written by `craft.py`; do not edit.", "",
        "- `recorded/`: recordings made by perf (`make.sh`), only of the programs in `work/`. `p510`, `p61`, `p612` and `p73`",
        "  in a name are the versions of perf: 5.10, 6.1, 6.12, 7.3.",
        "- Their kernel release and its build-id, `c000…01`, do not exist on any machine (`no_machine.py`). `../hostile.sh`",
        "  shows that the tests do not depend on the machine.",
        "- `crafted/`: files written byte by byte (`craft.py`, `crafting/`); `le` is little-endian, `be` is big-endian.",
        "- `work/build.sh` builds the programs again in `/tmp/perfx-data/work`, their path in the recordings, with the same",
        "  build-ids:", "",
        "| program | build-id |", "|---|---|"]
    with open(os.path.join(here, "work", "build.sh"), encoding="utf-8") as f:
        for line in f:
            words = line.split()
            if words[:1] == ["make_one"] and len(words) > 3:
                out.append(f"| {words[1]} | {words[3].replace('0x', '')} |")
    out += ["| compat | b000000000000000000000000000000000000010 |", "",
            "The last columns show the result of `perf script -D` for two versions (`check.py`): the number of records, and the",
            "error or warning. perf 6.1 refuses attrs larger than its own, that is, the recordings of 6.12 and 7.3. For",
            "`aux-le`, `aux-be` and `aux-index-*` the number is that of branches in `perf script --itrace=b`.", "",
            "## recorded", "", "| name | command | contents | 6.1 | 7.3 |", "|---|---|---|---|---|"]

    def verdict(key):
        a, b = (verdicts.get(key) or ["", ""])[:2]
        return f"{cell(a)} | {cell(b)}"
    for name, (command, note) in recorded.items():
        if len(command) > 300:
            command = command[:300] + " …"
        out.append(f"| {name} | {code(cell(command))} | {cell(note)} | {verdict('recorded/' + name)} |")
    out += ["", "## crafted"]
    for title, names in common.GROUPS:
        out += ["", "### " + title, "", "| name | contents | 6.1 | 7.3 |", "|---|---|---|---|"]
        for name in names:
            out.append(f"| {name} | {cell(common.FILES[name][1])} | {verdict('crafted/' + name)} |")
    with open(os.path.join(here, "README.md"), "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")


def main():
    layout.from_recordings(os.path.join(here, "recorded"))
    layout.old_headers()
    layout.sizes()
    layout.identities()
    contents.samples()
    contents.kinds()
    contents.features()
    scheduler.scheduler()
    streams.compression()
    streams.auxtrace()
    spe.arm_spe()
    intel_pt.intel_pt()
    layout.directories()
    validate.validation()
    folder = os.path.join(here, "crafted")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name, (content, _) in common.FILES.items():
        write(os.path.join(folder, name), content)
    readme()
    print(f"craft.py: {len(common.FILES)} files")


main()
