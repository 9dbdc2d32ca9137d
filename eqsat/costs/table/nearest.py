"""The environment whose times stand in for those of a machine that nothing was measured on."""

from __future__ import annotations

import re

from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable

_FAMILY = re.compile(r"cpu family (\d+)")
_MODEL = re.compile(r"model (\d+)")
_MINOR = re.compile(r"\S+ \d+\.\d+")


def nearest(table: CostTable, environment: Environment, *, anywhere: bool = False) -> Environment | None:
    """The environment with entries in a table, or shipped ones, that is most like another; None where there is none.

    It is one of the same device and protocol, of the same runtime in some version. Those with the same number of
    threads come first; then the same processor, vendor, family and model; then the same version of the runtime, or
    the same but for its last number; then the one with most entries. With `anywhere` the processor and the version do
    not count, so that the answer is the same on any machine.
    """
    counts = {
        other: number
        for other, number in table.known(environment.device).items()
        if other.is_measured
        and other != environment
        and other.protocol == environment.protocol
        and other.runtime.partition(" ")[0] == environment.runtime.partition(" ")[0]
    }

    def likeness(other: Environment) -> tuple[object, ...]:
        alike = () if anywhere else _likeness(other, environment)
        return other.threads == environment.threads, *alike, counts[other], other.text

    return max(counts, key=likeness, default=None)


def _likeness(one: Environment, other: Environment) -> tuple[bool, ...]:
    """The properties that two environments have in common, the most telling first."""
    vendors, families, models, versions = (
        [read(e) for e in (one, other)] for read in (_vendor, _family, _model, _version)
    )
    same_vendor = vendors[0] == vendors[1]
    same_family = same_vendor and families[0] == families[1]
    return (
        one.cpu == other.cpu,
        same_vendor,
        same_family,
        same_family and models[0] == models[1],
        one.runtime == other.runtime,
        versions[0] == versions[1],
    )


def _vendor(environment: Environment) -> str:
    word = re.match(r"[A-Za-z]+", environment.cpu)
    return word[0].lower() if word else ""


def _family(environment: Environment) -> str:
    return _part(_FAMILY, environment.cpu)


def _model(environment: Environment) -> str:
    return _part(_MODEL, environment.cpu)


def _version(environment: Environment) -> str:
    return _part(_MINOR, environment.runtime)


def _part(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[0] if match else ""
