"""Export of operators on images."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from eqsat.language.onnx.write.exporting import Exporter, ExportTarget
from eqsat.language.terms import DType


def _resize(target: ExportTarget) -> None:
    attrs, crops = target.attrs, target.node.op == "crop_resize"
    mode = attrs.get("mode", "nearest")
    how = "tf_crop_and_resize" if crops else attrs["coordinates"]
    if target.opset < 11:
        return _upsample(target, mode, how)
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


def _upsample(target: ExportTarget, mode: str, how: str) -> None:
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


def _grid_sample(target: ExportTarget) -> None:
    attrs, mode = target.attrs, target.attrs["mode"]
    if target.opset < 20:
        if target.type(0).rank != 4:
            target.needs(20, "other than two axes")
        mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    corners = int(attrs["align_corners"])
    target.emit("GridSample", *target.inputs, mode=mode, padding_mode=attrs["padding"], align_corners=corners)


EXPORTS: Mapping[str, Exporter] = MappingProxyType(
    {"GridSample": _grid_sample} | dict.fromkeys(("resize", "resize_nearest", "crop_resize"), _resize)
)
