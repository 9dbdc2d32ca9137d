"""Levels of ONNX Runtime's graph optimisation, and how a model states the one that its sessions are to have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from eqsat.errors import BackendError, nearest

#: The level of a session for which none is chosen, and the one at which operators are run as they are written.
DEFAULT_LEVEL, UNFUSED_LEVEL = "all", "basic"
#: Each level by name with its number. "extended" converts nothing to blocked channels or channels last; "basic" fuses
#: nothing into operators of ONNX Runtime's own besides.
LEVELS: Mapping[str, int] = MappingProxyType({DEFAULT_LEVEL: 99, "extended": 2, UNFUSED_LEVEL: 1})
#: The property of a model from which ONNX Runtime takes the options of a session, in place of the caller's, where the
#: environment variable is 1.
PROPERTY, VARIABLE = "ort_config", "ORT_LOAD_CONFIG_FROM_MODEL"


def session_level(name: str) -> Any:
    """A level as ONNX Runtime's `graph_optimization_level` takes it; BackendError for a name that is none."""
    from onnxruntime import GraphOptimizationLevel

    if name not in LEVELS:
        raise BackendError(f"no level {name!r}", expected="one of " + ", ".join(LEVELS), remedy=nearest(name, LEVELS))
    return GraphOptimizationLevel(LEVELS[name])


def stating(level: str, known: str = "") -> str:
    """The text of a model's property that states a level, beside the options that it stated before.

    >>> stating("basic", '{"session_options": {"intra_op_num_threads": 2}}')
    '{"session_options": {"intra_op_num_threads": 2, "graph_optimization_level": 1}}'
    """
    try:
        stated = json.loads(known or "{}")
    except ValueError:
        stated = {}  # ONNX Runtime would refuse it
    if not isinstance(stated, dict):
        stated = {}
    options = stated.get("session_options")
    stated["session_options"] = {
        **(options if isinstance(options, dict) else {}),
        "graph_optimization_level": LEVELS[level],
    }
    return json.dumps(stated)
