"""Import of operators on images: resizing of all opsets."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration.spec import normal_axis
from eqsat.language.onnx.operators.derived import stated
from eqsat.language.onnx.read.importing import Call, Importer, Unsupported
from eqsat.language.ops.vision.resize import is_plain
from eqsat.language.terms import Dim, Sym


def _floats(call: Call, index: int) -> tuple[float, ...]:
    array = call.constant(index)
    if array is None:
        raise Unsupported(f"{call.value(index)!r} is computed at run time")
    return tuple(float(v) for v in np.asarray(array, np.float32).ravel())


def _is_given(call: Call, index: int) -> bool:
    """True for an operand that is there and not an empty tensor, which stands for none."""
    if not call.has(index):
        return False
    return call.type(index).shape != (0,)


def _axes(call: Call, rank: int) -> tuple[int, ...]:
    found = tuple(normal_axis(a, rank) for a in call.attrs.get("axes", range(rank)))
    if len(set(found)) != len(found):
        raise ShapeError(f"axes {list(found)} name one axis twice", expected="different axes")
    return found


def _resize(call: Call) -> None:
    if call.opset < 11:
        return _upsample(call)
    rank = len(call.shape(0))
    axes = _axes(call, rank)
    policy = call.attrs.get("keep_aspect_ratio_policy", "stretch")
    size: dict[str, tuple[Any, ...]]
    if _is_given(call, 3):
        size = {"sizes": call.dims(3)}
    elif _is_given(call, 2):
        size, policy = {"scales": _floats(call, 2)}, "stretch"
    else:
        raise Unsupported("neither scales nor sizes are given")
    mode, how = call.attrs.get("mode", "nearest"), call.attrs.get("coordinate_transformation_mode", "half_pixel")
    more: dict[str, Any] = {}
    if how == "tf_crop_and_resize":
        more = {"region": _floats(call, 1), "extrapolation": call.attrs.get("extrapolation_value", 0.0)}
    if mode == "nearest":
        more["rounding"] = call.attrs.get("nearest_mode", "round_prefer_floor")
    else:
        more |= {"exclude_outside": bool(call.attrs.get("exclude_outside", 0))}
        more |= {"antialias": bool(call.attrs.get("antialias", 0))}
        more |= {"cubic_coeff": call.attrs.get("cubic_coeff_a", -0.75)}
    return _emit(call, axes, size, mode, how, {**more, **({"policy": policy} if policy != "stretch" else {})})


def _upsample(call: Call) -> None:
    """Resize of opset 10 and Upsample, which know scales alone and round a smaller axis up, a larger one down."""
    shape, mode = call.shape(0), call.attrs.get("mode", "nearest")
    scales = tuple(call.attrs["scales"]) if call.opset < 9 else _floats(call, 1)
    more: dict[str, Any] = {}
    if mode == "nearest":
        if min(scales) < 1 < max(scales):
            raise Unsupported("a nearest element above along one axis and below along another")
        more = {"rounding": "ceil" if min(scales) < 1 else "floor"}
    _emit(call, tuple(range(len(shape))), {"scales": scales}, mode, "asymmetric", more)


def _emit(
    call: Call,
    axes: tuple[int, ...],
    size: Mapping[str, tuple[Any, ...]],
    mode: str,
    how: str,
    more: Mapping[str, Any],
) -> None:
    """The operator for a mode, on the axes that change."""
    shape, crops = call.shape(0), how == "tf_crop_and_resize"
    ((name, wanted),) = size.items()
    if len(wanted) != len(axes):
        raise ShapeError(f"{len(wanted)} {name} for {len(axes)} axes", expected="one for each axis")
    if mode != "nearest" and not call.type(0).dtype.is_float:
        raise Unsupported(f"Resize of {call.type(0).dtype.value} in mode {mode!r}, which rounds as the runtime has it")
    if len(shape) == 1 and how == "tf_half_pixel_for_nn":
        raise Unsupported("tf_half_pixel_for_nn of a vector")
    kept = [i for i, axis in enumerate(axes) if "policy" in more or not _is_same(name, wanted[i], shape[axis])]
    kept.sort(key=lambda i: axes[i])
    if name == "scales" and any(isinstance(shape[axes[i]], Sym) and not is_plain(wanted[i]) for i in kept):
        raise Unsupported("a dim known by name only times a scale that is no simple fraction")
    if "policy" in more and any(isinstance(d, Sym) for d in (*wanted, *(shape[a] for a in axes))):
        raise Unsupported("one scale for axes known by name only")
    if not kept:
        return call.emit("identity", call.value(0))
    attrs: dict[str, Any] = {"axes": tuple(axes[i] for i in kept), name: tuple(wanted[i] for i in kept), **more}
    if crops:
        region = attrs["region"]
        if len(region) != 2 * len(axes):
            raise ShapeError(f"{len(region)} numbers of roi for {len(axes)} axes", expected="two for each axis")
        attrs["region"] = (*(region[i] for i in kept), *(region[len(axes) + i] for i in kept))
    else:
        attrs["coordinates"] = how
    if crops or mode != "nearest":
        attrs["mode"] = mode
    op = "crop_resize" if crops else "resize_nearest" if mode == "nearest" else "resize"
    return call.emit(op, call.value(0), **attrs)


def _is_same(name: str, wanted: Any, dim: Dim) -> bool:
    return bool(wanted == 1 if name == "scales" else wanted == dim)


#: What the modes of GridSample were called before opset 20.
_MODES = {"bilinear": "linear", "bicubic": "cubic"}


def _grid_sample(call: Call) -> None:
    if call.type(0).dtype is not call.type(1).dtype:
        raise Unsupported("a grid of another element type")
    mode = call.attrs.get("mode", "linear")
    if mode in ("cubic", "bicubic") and len(call.shape(0)) != 4:
        raise Unsupported("cubic sampling of other than two axes")
    attrs = stated(call, call.op, padding="padding_mode") | {"mode": _MODES.get(mode, mode)}
    call.emit(call.op, call.value(0), call.value(1), **attrs)


IMPORTS: Mapping[str, Importer] = MappingProxyType(
    {"GridSample": _grid_sample, "Resize": _resize, "Upsample": _upsample}
)
