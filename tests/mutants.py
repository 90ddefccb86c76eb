#!/usr/bin/env python3
"""mutants.py N [OUT]: changes the code in N places, one after the other, and prints which changes no quick test notices.

`cargo mutants` (cargo install cargo-mutants --locked) lists the possible changes of the packages in PACKAGES; every
so-many-th of the list is taken, so that N changes cover all of them, and the same N are drawn again. Each is applied to
this checkout, which must have no other changes, and taken back. The tests stop at the first that fails: unit tests of
the package first, then, if none does, the quick tests of tests/it. Beside each change, OUT (mutants.tsv) has the test
that noticed it, `lives`, or `unviable` if it does not compile. A change takes up to five minutes on two cores.
"""
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


def listed():
    command = ["cargo", "mutants", "--list", "--json", "--diff", "--no-shuffle", "--workspace"]
    files = [f"src/{name}/**" for name in PACKAGES if name != "passes"] + ["passes/**", OUTPUTS]
    command += [word for file in files for word in ("--file", file)]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def first_failure(command):
    """The first test that fails, or None. The rest is not run."""
    child = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    signal.alarm(LONGEST)
    try:
        for line in child.stdout:
            if found := re.match(r"test (.+) \.\.\. FAILED", line):
                return found[1]
        return None if child.wait() == 0 else "the test process ended early"
    except TimeoutError:
        return "no end"
    finally:
        signal.alarm(0)
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()


def tried(mutant):
    """The test that notices a change, `lives`, or `unviable`."""
    subprocess.run(["patch", "--quiet", mutant["file"]], cwd=ROOT, check=True, input=mutant["diff"], text=True)
    try:
        quiet = {"cwd": ROOT, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        units = ["cargo", "test", "--locked", "-p", mutant["package"], "--lib"]
        whole = ["cargo", "test", "--locked", "-p", "perfx", "--test", "it"]
        for command in (units, whole):
            if subprocess.run(command + ["--no-run"], **quiet).returncode:
                return "unviable"
            if failure := first_failure(command):
                return failure
        return "lives"
    finally:
        subprocess.run(["git", "checkout", "--quiet", mutant["file"]], cwd=ROOT, check=True)


def main():
    count = int(sys.argv[1])
    out = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "mutants.tsv")
    if subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT).returncode:
        sys.exit("mutants.py: this checkout has changes; commit them first")

    def stop(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    os.environ["INSTA_UPDATE"] = "no"
    mutants = listed()
    drawn = mutants[:: max(1, len(mutants) // count)][:count]
    print(f"{len(drawn)} of {len(mutants)} possible changes", flush=True)
    results = []
    with out.open("w") as table:
        for mutant in drawn:
            results.append(tried(mutant))
            table.write(f"{results[-1]}\t{mutant['name']}\n")
            table.flush()
    viable = [result for result in results if result != "unviable"]
    lives = viable.count("lives")
    print(f"{len(viable) - lives} of {len(viable)} changes were noticed; {lives} live; {out} lists them")


if __name__ == "__main__":
    main()
