"""Reads recordings of Linux perf as tables, and rewrites them, with the program perfx, which this package contains.

    import perfx

    for row in perfx.functions("perf.data")[:10]:
        print(row["self_percent"], row["function"])

    table = perfx.samples("perf.data", time="10%-20%")            # needs pyarrow
    perfx.inject("perf.data", "out.data", buildids=True)

Keyword arguments are the options of the command: `time="10%-20%"` is `--time 10%-20%`, `no_inline=True` is
`--no-inline`, and a list repeats an option. `perfx COMMAND --help` lists them.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Union

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Error", "Loss", "functions", "inject", "listed", "program", "run", "samples", "table"]

Input = Union[str, "os.PathLike[str]"]
Option = Union[None, bool, str, int, float, "os.PathLike[str]", Sequence[Union[str, int]]]
Row = Dict[str, Any]


class Error(Exception):
    """perfx failed. The text is what it wrote on standard error."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Loss(UserWarning):
    """perfx succeeded, but something was lost or is suspect. The text describes and counts it."""


def program() -> str:
    """The path of the program: `PERFX`, the one of this package, or the first one in `PATH`."""
    given = os.environ.get("PERFX")
    if given:
        return given
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", "posix_user")]
    found = shutil.which("perfx", path=os.pathsep.join(folders)) or shutil.which("perfx")
    if found is None:
        raise Error("no program perfx was found in this package or in PATH; PERFX can set its path", 1)
    return found


def run(*arguments: Union[str, Input], **options: Option) -> bytes:
    """Runs `perfx ARGUMENTS --OPTIONS`, and returns its standard output.

    Raises `Error` with its message if it fails, and warns of a `Loss` if something was lost.
    """
    command = [program(), *(os.fspath(argument) for argument in arguments), *_options(options)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    text = done.stderr.decode(errors="replace").strip()
    if done.returncode == 3:
        warnings.warn(text, Loss, stacklevel=_callers())
    elif done.returncode != 0:
        raise Error(text or f"perfx ended with {done.returncode}", done.returncode)
    return done.stdout


def functions(recording: Input, **options: Option) -> List[Row]:
    """The functions with their shares of the samples, the heaviest first: `perfx list functions --json`.

    The keys of a row are `function`, `dso`, `self_percent`, `total_percent`, `samples` and more; periods are
    integers.
    """
    return listed("functions", recording, **options)


def listed(what: str, recording: Input, **options: Option) -> List[Row]:
    """The rows of `perfx list WHAT --json`, such as `events`, `dsos`, `stacks` or `threads`."""
    rows: List[Row] = json.loads(run("list", what, "--json", "-q", _input(recording), **options))["rows"]
    # JSON has sums as texts, because other languages read large numbers inexactly.
    for row in rows:
        for key in ("period", "total_period"):
            if isinstance(row.get(key), str):
                row[key] = int(row[key])
    return rows


def inject(recording: Input, output: Input, **options: Option) -> None:
    """Writes the recording with the additions of the options: `perfx inject RECORDING -o OUTPUT --OPTIONS`."""
    run("inject", "-q", _input(recording), "-o", output, **options)


def samples(recording: Input, **options: Option) -> "pyarrow.Table":
    """The samples, each with its event, thread's name, function (`symbol`), DSO and source line, in the order of time.

    The columns are those of the table `samples` of `perfx export parquet`, and these names; `stack` is the
    number of the call chain in the table `stacks`.
    """
    tables = _tables(recording, ["samples", "frames", "dsos", "events"], options)
    found = _looked_up(tables["samples"], "event", tables["events"], {"event_name": "name"})
    columns = {"dso": "dso", "symbol": "symbol", "file": "file", "line": "line"}
    found = _looked_up(found, "frame", tables["frames"], columns)
    return _looked_up(found, "dso", tables["dsos"], {"dso_path": "path"})


def table(name: str, recording: Input, **options: Option) -> "pyarrow.Table":
    """One table of `perfx export parquet`: `samples`, `frames`, `stacks`, `threads`, …"""
    return _tables(recording, [name], options)[name]


def _tables(recording: Input, names: List[str], options: Dict[str, Option]) -> Dict[str, "pyarrow.Table"]:
    try:
        from pyarrow import parquet
    except ImportError as missing:
        raise ImportError("tables need the package pyarrow: pip install perfx-cli[tables]") from missing
    with tempfile.TemporaryDirectory(prefix="perfx-") as folder:
        run("export", "parquet", "-q", _input(recording), "--dir", folder, tables=",".join(names), **options)
        files = {name: next((Path(folder) / name).glob("*.parquet"), None) for name in names}
        missing_tables = [name for name, file in files.items() if file is None]
        if missing_tables:
            raise Error(f"{os.fspath(recording)}: the recording has no table {missing_tables[0]}", 1)
        # Read into memory, because the files are deleted, and without the folders' names as columns.
        return {name: parquet.ParquetFile(file).read() for name, file in files.items()}


def _looked_up(
    table: "pyarrow.Table", key: str, other: "pyarrow.Table", columns: Dict[str, str]
) -> "pyarrow.Table":
    """The table with columns of the row of `other` that has the same key. Joins of pyarrow take no lists or maps."""
    from pyarrow import compute

    rows = compute.index_in(table.column(key), value_set=other.column(key).combine_chunks())
    for name, column in columns.items():
        table = table.append_column(name, other.column(column).take(rows))
    return table


def _input(recording: Input) -> str:
    path = os.fspath(recording)
    # perfx does not take words with these beginnings as names of files.
    return f"./{path}" if path.startswith(("-", "@")) else path


def _options(options: Dict[str, Option]) -> List[str]:
    words: List[str] = []
    for key, value in options.items():
        name = "--" + key.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(name)
        elif isinstance(value, (list, tuple)):
            words += [f"{name}={one}" for one in value]
        else:
            words.append(f"{name}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
    return words


def _callers() -> int:
    """The number of frames from `run` to the first one outside this file."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        depth, frame = depth + 1, frame.f_back
    return depth
