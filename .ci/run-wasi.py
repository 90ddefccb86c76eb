"""Runs a WASI program: `python run-wasi.py PROGRAM ARGUMENTS`. It can read this repository. Needs wasmtime."""

import sys
from pathlib import Path

from wasmtime import Engine, ExitTrap, Linker, Module, Store, WasiConfig

root = str(Path(__file__).resolve().parent.parent)
wasi = WasiConfig()
wasi.argv = sys.argv[1:]
wasi.inherit_stdout()
wasi.inherit_stderr()
wasi.preopen_dir(root, root)

engine = Engine()
store = Store(engine)
store.set_wasi(wasi)
linker = Linker(engine)
linker.define_wasi()
program = linker.instantiate(store, Module.from_file(engine, sys.argv[1]))
try:
    program.exports(store)["_start"](store)
except ExitTrap as exit:
    sys.exit(exit.code)
