"""Tests the module of the wheel: `python test.py RECORDING DAMAGED`, where the wheel is installed."""

import sys
import tempfile
import warnings
from pathlib import Path

import perfx

recording, damaged = sys.argv[1:]
rows = perfx.functions(recording, head=3)
assert len(rows) == 3 and rows[0]["samples"] > 0 and isinstance(rows[0]["period"], int), rows
assert perfx.listed("events", Path(recording))[0]["samples"] > 0

with tempfile.TemporaryDirectory() as folder:
    output = Path(folder) / "out.data"
    perfx.inject(recording, output, buildids=True)
    assert output.stat().st_size > 0
    try:
        perfx.inject(recording, output, buildids=True)
        raise SystemExit("an existing file was replaced")
    except perfx.Error as error:
        assert error.exit_code == 1 and str(output) in str(error), error

try:
    perfx.functions(str(Path(recording).parent / "missing.data"))
    raise SystemExit("a missing file was read")
except perfx.Error as error:
    assert "missing.data: can't be opened" in str(error), error

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    perfx.functions(damaged)
assert [one.category for one in caught] == [perfx.Loss], caught
assert caught[0].filename == __file__ and str(caught[0].message).startswith("perfx: warning: "), caught[0]

try:
    import pyarrow  # noqa: F401
except ImportError:
    try:
        perfx.samples(recording)
        raise SystemExit("tables were read without pyarrow")
    except ImportError as error:
        assert "pyarrow" in str(error)
else:
    table = perfx.samples(recording, time="0%-50%")
    whole = perfx.samples(recording)
    assert 0 < table.num_rows < whole.num_rows
    assert whole.column("time_ns").to_pylist() == sorted(whole.column("time_ns").to_pylist())
    # The same sums as in the list.
    sums = {}
    for symbol, period in zip(whole.column("symbol").to_pylist(), whole.column("period").to_pylist()):
        sums[symbol] = sums.get(symbol, 0) + period
    assert sums[rows[0]["function"]] == rows[0]["period"], (sums, rows[0])
    assert whole.column("event_name")[0].as_py() and whole.column("dso_path")[0].as_py()
    assert perfx.table("threads", recording).num_rows > 0
print("the module works")
