"""Waits for a process and watches its private memory."""
import re, time


def peak(process):
    """The peak of private (anonymous) memory of a process in MiB, polled every 2 ms until it ends."""
    most = 0
    while process.poll() is None:
        try:
            status = open(f"/proc/{process.pid}/status").read()
            most = max(most, *[int(kb) for kb in re.findall(r"RssAnon:\s+(\d+)", status)] or [0])
        except (FileNotFoundError, ProcessLookupError):
            pass
        time.sleep(0.002)
    return most / 1024
