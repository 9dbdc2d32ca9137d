"""The names that an option may have, read from the registries they are in when they are asked for."""

from __future__ import annotations

from typing import get_args


def devices() -> tuple[str, ...]:
    """Devices, and the GPU that is here."""
    from eqsat.costs.devices.device import DEVICES
    from eqsat.costs.devices.fields import CUDA

    return (*DEVICES, CUDA)


def extractors() -> tuple[str, ...]:
    """Extractors."""
    from eqsat.extract import EXTRACTORS

    return tuple(EXTRACTORS)


def precisions() -> tuple[str, ...]:
    """Policies of precision."""
    from eqsat.costs.kernels.precision import POLICIES

    return tuple(POLICIES)


def layouts() -> tuple[str, ...]:
    """Layouts, and all that a device has kernels for."""
    from eqsat.language.terms.state import LAYOUTS

    return ("auto", *LAYOUTS)


def over_sizes() -> tuple[str, ...]:
    """Ways to weigh sizes against each other."""
    from eqsat.runtime.examples import OverSizes

    return get_args(OverSizes)


def forms() -> tuple[str, ...]:
    """Forms of operators on integers."""
    from eqsat.language.graphs.operators_on_integers import FORMS

    return FORMS


def trusts() -> tuple[str, ...]:
    """Grounds on which rules are taken for true."""
    from eqsat.rewrites.rules.rule import Trust

    return get_args(Trust)


def partitioners() -> tuple[str, ...]:
    """Ways to cut graphs."""
    from eqsat.language.graphs.partition import PARTITIONERS

    return tuple(PARTITIONERS)


def terms() -> tuple[str, ...]:
    """Terms of costs."""
    from eqsat.costs.model.amounts import UNITS

    return tuple(UNITS)
