"""The process of one step: a line of JSON before each part, and one for each observation.

`python -m eqsat.doctor.child STEP [--dry]`; what goes wrong in it, a crash included, is left to the process above.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from eqsat.doctor.installed import arch
from eqsat.doctor.observation import Observation
from eqsat.doctor.runners import GpuRunner, HostRunner, Runner
from eqsat.doctor.steps import INSTALLATION, STEPS, examine
from eqsat.errors import BackendError
from eqsat.testing.cuda.emulator import compiler


def main(arguments: Sequence[str]) -> None:
    """Examine the step that is named, on a GPU, or dry."""
    step, dry = STEPS[arguments[0]], "--dry" in arguments[1:]
    if dry and step not in INSTALLATION:
        try:
            compiler()
        except BackendError as error:
            lacking = Observation(step.name, "skipped", f"{error.what}, so that no kernel is run here")
            print(json.dumps({"found": lacking.as_dict()}), flush=True)
            return
    for name, part in step.parts:
        print(json.dumps({"begun": name}), flush=True)
        runner: Runner = HostRunner(arch()) if dry or step in INSTALLATION else GpuRunner()
        for observation in examine(name, part, runner):
            print(json.dumps({"found": observation.as_dict()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
