"""Properties of a model: texts by key, beside its graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from onnx import ModelProto

from eqsat.language.onnx.write.exporter import origin_of
from eqsat.language.terms import Graph

#: A property's key, and its new text given the one that was there.
Property = tuple[str, Callable[[str], str]]


def set_property(model: ModelProto, stated: Property) -> None:
    """Give a model a property, in place of one of the same key."""
    key, text = stated
    others = [one for one in model.metadata_props if one.key != key]
    known = next((one.value for one in model.metadata_props if one.key == key), "")
    del model.metadata_props[:]
    model.metadata_props.extend(others)
    model.metadata_props.add(key=key, value=text(known))


def with_property(graph: Graph, stated: Property) -> Graph:
    """A graph whose model has a property when it is written."""
    origin = origin_of(graph)
    model = ModelProto.FromString(origin.model)
    set_property(model, stated)
    return replace(graph, origin=replace(origin, model=model.SerializeToString(deterministic=True)))
