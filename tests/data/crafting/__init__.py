"""What craft.py is made of: an independent builder of perf.data files (no code of the project is used)."""
