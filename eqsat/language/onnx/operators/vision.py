"""Operators on images, read and written: resizing of all opsets, and sampling at a grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import normal_axis
from eqsat.language.onnx.operators.derived import stated
from eqsat.language.onnx.read.importing import Call, Importer, Unsupported
from eqsat.language.onnx.write.exporting import Exporter, ExportTarget
from eqsat.language.ops.vision.resize import is_plain
from eqsat.language.terms import Dim, DType, Sym


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
    axes = tuple(normal_axis(a, rank) for a in call.attrs.get("axes", range(rank)))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"axes {list(axes)} name one axis twice", expected="different axes")
    return axes


def _read_resize(call: Call) -> None:
    if call.opset < 11:
        return _read_upsample(call)
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


def _read_upsample(call: Call) -> None:
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
    changed = [i for i, axis in enumerate(axes) if "policy" in more or not _is_same(name, wanted[i], shape[axis])]
    changed.sort(key=lambda i: axes[i])
    if name == "scales" and any(isinstance(shape[axes[i]], Sym) and not is_plain(wanted[i]) for i in changed):
        raise Unsupported("a dim known by name only times a scale that is no simple fraction")
    if "policy" in more and any(isinstance(d, Sym) for d in (*wanted, *(shape[a] for a in axes))):
        raise Unsupported("one scale for axes known by name only")
    if not changed:
        return call.emit("identity", call.value(0))
    attrs: dict[str, Any] = {"axes": tuple(axes[i] for i in changed), name: tuple(wanted[i] for i in changed), **more}
    if crops:
        region = attrs["region"]
        if len(region) != 2 * len(axes):
            raise ShapeError(f"{len(region)} numbers of roi for {len(axes)} axes", expected="two for each axis")
        attrs["region"] = (*(region[i] for i in changed), *(region[len(axes) + i] for i in changed))
    else:
        attrs["coordinates"] = how
    if crops or mode != "nearest":
        attrs["mode"] = mode
    op = "crop_resize" if crops else "resize_nearest" if mode == "nearest" else "resize"
    return call.emit(op, call.value(0), **attrs)


def _is_same(name: str, wanted: Any, dim: Dim) -> bool:
    return bool(wanted == 1 if name == "scales" else wanted == dim)


#: Names of modes of GridSample before opset 20, and those since.
_MODES = {"bilinear": "linear", "bicubic": "cubic"}


def _read_grid_sample(call: Call) -> None:
    if call.type(0).dtype is not call.type(1).dtype:
        raise Unsupported("a grid of another element type")
    mode = call.attrs.get("mode", "linear")
    if mode in ("cubic", "bicubic") and len(call.shape(0)) != 4:
        raise Unsupported("cubic sampling of other than two axes")
    attrs = stated(call, call.op, padding="padding_mode") | {"mode": _MODES.get(mode, mode)}
    call.emit(call.op, call.value(0), call.value(1), **attrs)


IMPORTS: Mapping[str, Importer] = {"GridSample": _read_grid_sample, "Resize": _read_resize, "Upsample": _read_upsample}


def _write_resize(target: ExportTarget) -> None:
    attrs, crops = target.attrs, target.node.op == "crop_resize"
    mode = attrs.get("mode", "nearest")
    how = "tf_crop_and_resize" if crops else attrs["coordinates"]
    if target.opset < 11:
        return _write_upsample(target, mode, how)
    if how == "half_pixel_symmetric":
        target.needs(19, how)
    if how == "tf_half_pixel_for_nn" and target.opset >= 13:
        raise target.refusal(f"{how} is not in opset {target.opset}", "an opset from 11 to 12")
    values: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": how}
    if mode == "nearest":
        values["nearest_mode"] = attrs["rounding"]
    else:
        values |= _kernel(target, mode)
    if crops and attrs["extrapolation"]:
        values["extrapolation_value"] = attrs["extrapolation"]
    rank, axes = target.type(0).rank, attrs["axes"]
    whole = attrs["policy"] == "stretch" and (target.opset < 18 or bool(attrs["scales"]))
    if not whole:
        target.needs(18, "keep_aspect_ratio_policy")
        values["axes"] = axes
    if attrs["policy"] != "stretch":
        values["keep_aspect_ratio_policy"] = attrs["policy"]
    places = tuple(range(rank)) if whole else axes
    nothing = target.model.parameter(np.zeros(0), DType.FLOAT32) if target.opset < 13 else ""
    region, scales, sizes = nothing, nothing, ""
    if crops:
        ends = len(axes)
        starts = dict(zip(axes, attrs["region"][:ends], strict=True))
        stops = dict(zip(axes, attrs["region"][ends:], strict=True))
        both = [*(starts.get(a, 0.0) for a in places), *(stops.get(a, 1.0) for a in places)]
        region = target.model.parameter(np.array(both), DType.FLOAT32)
    if attrs["scales"]:
        scales = _scales(target, places)
    else:
        wanted = dict(zip(axes, attrs["sizes"], strict=True))
        sizes = target.shape([wanted.get(a, target.type(0).dims[a]) for a in places])
    return target.emit("Resize", target.input(0), region, scales, sizes, **values)


def _kernel(target: ExportTarget, mode: str) -> dict[str, Any]:
    """The attributes of interpolation that are not the default."""
    attrs, values = target.attrs, {}
    if mode == "cubic" and attrs["cubic_coeff"] != -0.75:
        values["cubic_coeff_a"] = attrs["cubic_coeff"]
    if attrs["exclude_outside"]:
        values["exclude_outside"] = 1
    if attrs["antialias"]:
        target.needs(18, "antialias")
        values["antialias"] = 1
    return values


def _scales(target: ExportTarget, places: tuple[int, ...]) -> str:
    wanted = dict(zip(target.attrs["axes"], target.attrs["scales"], strict=True))
    return target.model.parameter(np.array([wanted.get(a, 1.0) for a in places]), DType.FLOAT32)


def _write_upsample(target: ExportTarget, mode: str, how: str) -> None:
    """Resize of opset 10 and Upsample: scales alone, places that begin at 0."""
    scales, attrs = target.attrs["scales"], target.attrs
    plain = how == "asymmetric" and scales and mode != "cubic"
    larger, smaller = all(s >= 1 for s in scales), all(s <= 1 for s in scales)
    if mode == "nearest":
        plain = plain and ((attrs["rounding"] == "floor" and larger) or (attrs["rounding"] == "ceil" and smaller))
    elif plain:
        plain = not attrs["antialias"]
    if not plain:
        target.needs(11, f"coordinates {how!r} of mode {mode!r}")
    if not larger:
        target.needs(10, "a scale below 1")
    places = tuple(range(target.type(0).rank))
    if target.opset < 9:
        wanted = dict(zip(attrs["axes"], scales, strict=True))
        return target.emit("Upsample", target.input(0), mode=mode, scales=[wanted.get(a, 1.0) for a in places])
    op_type = "Resize" if target.opset >= 10 else "Upsample"
    return target.emit(op_type, target.input(0), _scales(target, places), mode=mode)


def _write_grid_sample(target: ExportTarget) -> None:
    attrs, mode = target.attrs, target.attrs["mode"]
    if target.opset < 20:
        if target.type(0).rank != 4:
            target.needs(20, "other than two axes")
        mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    corners = int(attrs["align_corners"])
    target.emit("GridSample", *target.inputs, mode=mode, padding_mode=attrs["padding"], align_corners=corners)


EXPORTS: Mapping[str, Exporter] = {"GridSample": _write_grid_sample} | dict.fromkeys(
    ("resize", "resize_nearest", "crop_resize"), _write_resize
)
