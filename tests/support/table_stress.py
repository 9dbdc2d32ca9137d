"""Writers of one cost table, killed at random, with readers beside them: `python table_stress.py FILE KILLS SEED`.

Prints, as JSON, what was acknowledged and is missing, what is torn, and what went wrong in readers and writers.
"""

import json
import os
import random
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable

from eqsat.costs.kernels.key import OpKey
from eqsat.costs.table.entry import Entry, TableRecord
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable
from eqsat.language.terms.types import TensorType

HERE = Environment("onnxruntime-cpu", "a processor", "onnxruntime 1", 1)
WRITERS, READERS = 3, 2
#: Entries that are merged in one transaction, all of them or none; ids of one writer, a multiple of it.
BATCH, IDS = 20, 1_000_000
#: A table is closed and opened anew after this many writes, so that kills meet opening too.
WRITES = 12


def key(number: int) -> OpKey:
    return OpKey.of("relu", {}, [TensorType.of("float32", (number,))], [False], {})


def entry(number: int, plan: str = "") -> Entry:
    """An entry whose every field says whose it is."""
    return Entry(float(number), float(number), float(number), number + 1, plan)


def is_whole(text: str, found: Entry) -> bool:
    number = int(text.partition("[")[2][:-1])
    written = found.samples - 1 if number == 0 else number
    return found == entry(written, found.plan)


def write(path: str, first: int, say: Callable[[str], None]) -> None:
    """Single entries, batches, and an entry that all writers overwrite, each acknowledged once it is written."""
    number = first
    while True:
        with CostTable(path, shipped=False) as table:
            for turn in range(WRITES):
                if turn % 4 == 3:
                    numbers = range(number, number + BATCH)
                    table.merge(TableRecord(HERE, key(n).text, entry(n, f"batch {number}")) for n in numbers)
                    say("".join(f"put {n}\n" for n in numbers))
                    number += BATCH
                else:
                    table.put(HERE, key(number), entry(number))
                    say(f"put {number}\n")
                    number += 1
                table.put(HERE, key(0), entry(number))


def read(path: str, say: Callable[[str], None]) -> None:
    """Reads whole tables: entries are whole, batches complete, and none disappears."""
    known = 0
    while True:
        with CostTable(path, shipped=False) as table:
            for _ in range(3):
                found = table.entries(HERE)
                torn = [text for text, one in found.items() if not is_whole(text, one)] + partial(found)
                for text in torn:
                    say(f"torn {text}\n")
                if len(found) < known:
                    say(f"torn {known} entries, then {len(found)}\n")
                known = len(found)
                say("read\n")


def partial(found: dict[str, Entry]) -> list[str]:
    """Batches of which a part is there."""
    plans: dict[str, int] = {}
    for one in found.values():
        if one.plan:
            plans[one.plan] = plans.get(one.plan, 0) + 1
    return [plan for plan, n in plans.items() if n != BATCH]


class Crowd:
    """The processes: one pipe takes what all of them say."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.heard = bytearray()
        self.begun = 0

    def fork(self, work: Callable[..., None], *arguments: object) -> int:
        child = os.fork()
        if child:
            return child
        try:
            work(self.path, *arguments, lambda text: os.write(self.writing, text.encode()))
        finally:
            # A child ends here whatever happens, and works without end unless something does.
            os.write(self.writing, f"failed {json.dumps(traceback.format_exc()[-1500:])}\n".encode())
            os._exit(1)

    def writer(self) -> int:
        self.begun += 1
        return self.fork(write, self.begun * IDS)

    def listen(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            try:
                self.heard += os.read(self.reading, 1 << 16)
            except BlockingIOError:
                if time.monotonic() >= until:
                    return
                time.sleep(0.001)


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def main(path: str, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    crowd = Crowd(path)
    writers = [crowd.writer() for _ in range(WRITERS)]
    readers = [crowd.fork(read) for _ in range(READERS)]
    for _ in range(kills):
        crowd.listen(rng.uniform(0, 0.08))
        victim = rng.randrange(WRITERS)
        kill(writers[victim])
        writers[victim] = crowd.writer()
    for child in writers:
        kill(child)
    # Readers outlive the writers: they must still read what is there.
    heard = crowd.heard.count(b"read\n")
    while crowd.heard.count(b"read\n") < heard + READERS and b"failed" not in crowd.heard:
        crowd.listen(0.01)
    for child in readers:
        kill(child)
    crowd.listen(0)
    lines = crowd.heard.decode().splitlines()
    acknowledged = [key(int(line[4:])).text for line in lines if line.startswith("put ")]
    with CostTable(path, shipped=False) as table:
        table.put(HERE, key(1), entry(1))
        found = table.entries(HERE)
    connection = sqlite3.connect(path)
    result = {
        "acknowledged": len(acknowledged),
        "entries": len(found),
        "reads": lines.count("read"),
        "missing": [text for text in acknowledged if text not in found],
        "torn": [line for line in lines if line.startswith("torn ")]
        + [text for text, one in found.items() if not is_whole(text, one)]
        + partial(found),
        "failed": [line for line in lines if line.startswith("failed ")],
        "integrity": connection.execute("PRAGMA integrity_check").fetchone()[0],
    }
    connection.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
