#!/usr/bin/env python3
"""mutants.py N [OUT] [--units]: changes the code in N places and lists the changes that no quick test notices.

`cargo mutants` (cargo install cargo-mutants --locked) lists the possible changes of the packages in PACKAGES; every
so-many-th of the list is taken, so that N changes cover all of them, and the same N are drawn again. All are put into
this checkout at once, which must have no other changes, and taken back at the end: each function that one changes has
its body twice, and PERFX_MUTANT chooses which runs. So everything is built only once. For each change, the tests stop
at the first that fails: those of the package first, then, if none does, the quick tests of tests/it, unless --units is
given. Beside each change, OUT (mutants.tsv) has the test that noticed it, `lives`, `unviable` if it does not compile,
or `not tried` if the body cannot be there twice: constants, and functions that return `impl Trait`.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ["passes", "filter", "samples", "export", "auxtrace", "trace"]
# Of the program itself, the files that write outputs.
OUTPUTS = "src/io/**"
LONGEST = 900
CHOSEN = """{ static CHOSEN: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| std::env::var("PERFX_MUTANT").as_deref() == Ok("%d")) }"""


def cargo(*words):
    command = ["cargo", *words]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def listed():
    files = [f"src/{name}/**" for name in PACKAGES if name != "passes"] + ["passes/**", OUTPUTS]
    words = ["mutants", "--list", "--json", "--no-shuffle", "--workspace"]
    return json.loads(cargo(*words, *(word for file in files for word in ("--file", file))).stdout)


def put(mutants):
    """Puts the changes with these numbers into the sources. Returns the numbers of those that cannot be there."""
    left_out, files = [], collections.defaultdict(list)
    for number, mutant in mutants.items():
        files[mutant["file"]].append(number)
    for name, numbers in files.items():
        text = (ROOT / name).read_text()
        lines = [0] + [match.end() for match in re.finditer("\n", text)]

        def at(place):
            return lines[place["line"] - 1] + place["column"] - 1

        bodies = collections.defaultdict(list)
        for number in numbers:
            function = mutants[number]["function"]
            if not function or "impl " in function["return_type"]:
                left_out.append(number)
                continue
            start, end = (at(function["span"][edge]) for edge in ("start", "end"))
            begin = text.index("{", text.index("fn ", start)) + 1
            is_const = "const fn" in text[start:begin]
            (left_out if is_const else bodies[begin, end - 1]).append(number)
        for (begin, end), own in sorted(bodies.items(), reverse=True):
            if any(outer < begin and end < outer_end for outer, outer_end in bodies):
                left_out += own
                continue
            changed = ""
            for number in own:
                first, last = (at(mutants[number]["span"][edge]) for edge in ("start", "end"))
                body = text[begin:first] + mutants[number]["replacement"] + text[last:end]
                changed += f" if {CHOSEN % number} {{ /*{number}*/ {body} /*{number} ends*/ }} else"
            text = f"{text[:begin]}{changed} {{{text[begin:end]}}}{text[end:]}"
        (ROOT / name).write_text(text)
    return left_out


def unviable(mutants):
    """The numbers of changes at which the compiler reports an error; None if it compiles."""
    found, places = set(), {}
    for name in {mutant["file"] for mutant in mutants.values()}:
        text = (ROOT / name).read_text()
        for match in re.finditer(r"/\*(\d+)\*/.*?/\*\1 ends\*/", text, re.DOTALL):
            first, last = (text.count("\n", 0, edge) + 1 for edge in match.span())
            places.setdefault(name, []).append((first, last, int(match[1])))
    checked = cargo("check", "--locked", "--workspace", "--keep-going", "--message-format=json")
    messages = [json.loads(line).get("message") for line in checked.stdout.splitlines()]
    for message in messages:
        for span in message["spans"] if isinstance(message, dict) and message["level"] == "error" else []:
            own = places.get(span["file_name"], [])
            found |= {number for first, last, number in own if first <= span["line_start"] <= last}
    return None if checked.returncode == 0 else found


def tests(*words):
    """The test programs of a package, each with its folder."""
    built = cargo("test", "--locked", "--no-run", "--message-format=json", *words)
    if built.returncode:
        sys.exit(f"mutants.py: cargo test {' '.join(words)} does not compile")
    artifacts = [json.loads(line) for line in built.stdout.splitlines()]
    return [
        (artifact["executable"], pathlib.Path(artifact["manifest_path"]).parent)
        for artifact in artifacts
        if artifact.get("executable") and artifact["profile"]["test"]
    ]


def first_failure(number, programs):
    """The first test that fails, or None. The rest is not run."""
    for program, folder in programs:
        child = subprocess.Popen(
            [program], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True, env={**os.environ, "PERFX_MUTANT": str(number), "INSTA_UPDATE": "no"},
        )
        signal.alarm(LONGEST)
        try:
            for line in child.stdout:
                if found := re.match(r"test (.+) \.\.\. FAILED", line):
                    return found[1]
            if child.wait():
                return "the test process ended early"
        except TimeoutError:
            return "no end"
        finally:
            signal.alarm(0)
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
    return None


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("count", type=int)
    arguments.add_argument("out", type=pathlib.Path, nargs="?", default="mutants.tsv")
    arguments.add_argument("--units", action="store_true")
    options = arguments.parse_args()
    if subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT).returncode:
        sys.exit("mutants.py: this checkout has changes; commit them first")

    def stop(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    every = listed()
    drawn = dict(enumerate(every[:: max(1, len(every) // options.count)][: options.count]))
    print(f"{len(drawn)} of {len(every)} possible changes", flush=True)
    results, rest = {}, drawn
    try:
        while rest:
            results |= dict.fromkeys(put(rest), "not tried")
            wrong = unviable(rest)
            if wrong is None:
                break
            if not wrong:
                sys.exit("mutants.py: the code does not compile, and no change is the reason")
            results |= dict.fromkeys(wrong, "unviable")
            rest = {number: mutant for number, mutant in rest.items() if number not in results}
            subprocess.run(["git", "checkout", "--quiet", "."], cwd=ROOT, check=True)
        units = {name: tests("-p", name, "--lib") for name in {mutant["package"] for mutant in drawn.values()}}
        whole = [] if options.units else tests("-p", "perfx", "--test", "it")
        with options.out.open("w") as table:
            for number, mutant in drawn.items():
                programs = units[mutant["package"]] + whole
                result = results.get(number) or first_failure(number, programs) or "lives"
                results[number] = result
                table.write(f"{result}\t{mutant['name']}\n")
                table.flush()
    finally:
        subprocess.run(["git", "checkout", "--quiet", "."], cwd=ROOT, check=True)
    tried = [result for result in results.values() if result not in ("unviable", "not tried")]
    lives = tried.count("lives")
    print(f"{len(tried) - lives} of {len(tried)} changes were noticed; {lives} live; {options.out} lists them")


if __name__ == "__main__":
    main()
