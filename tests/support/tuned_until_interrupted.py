"""A search that goes on until Ctrl-C: prints "measured" for each candidate, then its result as JSON."""

import json
import time

from eqsat.runtime.tuning.config import TunerConfig
from eqsat.runtime.tuning.search import RandomSearch
from eqsat.runtime.tuning.space import OptionSpace
from eqsat.runtime.tuning.tuner import tune

if __name__ == "__main__":
    space = OptionSpace({"tile": tuple(range(1, 100_000))})

    def compiled(candidate):
        time.sleep(0.01)
        return candidate["tile"]

    def measure(tile):
        print("measured", flush=True)
        return tile * 1e-6

    result = tune(space, RandomSearch(space, TunerConfig(generations=10_000)), compiled, measure, threads=2)
    times = [trial.seconds for trial in result.history]
    least = result.seconds == min(times) and result.candidate["tile"] * 1e-6 == result.seconds
    print(json.dumps({"interrupted": result.is_interrupted, "least": least, "tried": len(times)}), flush=True)
