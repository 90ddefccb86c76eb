"""The registry of crafted files and what most of them share."""
from . import features as F
from .perfdata import Event, File, Records

START = 1000000000  # ns, the time of the first event
FILES = {}          # name -> (bytes or {name: bytes} for a directory, description)
GROUPS = []         # (title, [names])

BURN_ID = bytes.fromhex("b000000000000000000000000000000000000001")


def group(title):
    GROUPS.append((title, []))


def add(name, content, note):
    """Registers crafted/NAME.data."""
    name += ".data"
    assert name not in FILES, name
    FILES[name] = (content, note)
    GROUPS[-1][1].append(name)


def samples(event, n=5, at=START, step=1000, **more):
    return b"".join(event.sample(time=at + i * step, ip=0x401150 + 16 * i, **more) for i in range(n))


def stream(event, n=5, extra=b""):
    """A whole small story: maps, n samples, what the caller has to add, exit, end of round."""
    r = Records(event)
    return (r.start() + samples(event, n) + extra + r.exit(time=START + 100000) + event.o.rec(68))


def simple(order, extra=b"", features=None, **layout):
    """A file with one event."""
    e = Event(order)
    f = File(order, [e], stream(e, extra=extra), {**F.basic(order, [e]), **(features or {})}, **layout)
    return f.build()
