"""Writer of one cache of tuned kernels among several: `python kernel_cache_writer.py FILE NUMBER COUNT`.

Puts COUNT entries of its own, and one after the other under a key that all writers share.
"""

import sys
import warnings

from eqsat.runtime.tuning.candidate import TuningCandidate
from eqsat.runtime.tuning.records import KernelEntry, KernelKey
from eqsat.runtime.tuning.store import KernelCache

SHARED = KernelKey("shared", "f32[8]", "c", "x86")


def own(number: int, place: int) -> KernelKey:
    return KernelKey(f"writer {number}", f"f32[{place}]", "c", "x86")


def entry(number: int, place: int) -> KernelEntry:
    """An entry whose time differs from that of every other writer and place."""
    return KernelEntry(TuningCandidate({"writer": number, "place": place}), 1.0 / (1 + 7 * place + number), "source")


if __name__ == "__main__":
    path, number, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("ignore")  # of a damaged file that is set aside
    print("ready", flush=True)
    sys.stdin.readline()
    with KernelCache(path) as cache:
        for place in range(count):
            cache.put(own(number, place), entry(number, place))
            cache.put(SHARED, entry(number, place))
