"""Convolutions, attention and normalisations that cuDNN computes, and its plans as text."""

from __future__ import annotations

from eqsat.errors import BackendError
from eqsat.language.terms.types import DType
from eqsat.runtime.cuda.libraries.calls import Attention, Convolution, Normalisation
from eqsat.runtime.cuda.libraries.epilogues import forms_addend
from eqsat.runtime.cuda.libraries.library import check_plan_version
from eqsat.runtime.kernels.view import WIDEST_ACCESS, View

NAME = "cudnn"
#: The widest heads that attention takes.
WIDEST_HEAD = 256

#: cuDNN's names of element types.
TYPES = {DType.FLOAT32: "FLOAT", DType.FLOAT16: "HALF", DType.BFLOAT16: "BFLOAT16"}
_HALVES = (DType.FLOAT16, DType.BFLOAT16)

Call = Convolution | Attention | Normalisation


def expressible(call: Call) -> str | None:
    """None where cuDNN's graphs can state a call, else the reason why not; cuDNN may still have no plan for it."""
    if any(view.count == 0 for view in views_of(call)):
        return "nothing to compute"
    if any(stride < 0 and size > 1 for v in views_of(call) for size, stride in zip(v.shape, v.strides, strict=True)):
        return "negative strides"
    if isinstance(call, Convolution):
        return _convolution_fault(call)
    return _attention_fault(call) if isinstance(call, Attention) else _normalisation_fault(call)


def views_of(call: Call) -> tuple[View, ...]:
    """The views of a call in the order their tensors are made, the result last."""
    if isinstance(call, Convolution):
        return (call.x, call.w, *(v for v in (call.bias, call.addend) if v is not None), call.result)
    if isinstance(call, Attention):
        return (call.q, call.k, call.v, *(() if call.mask is None else (call.mask,)), call.result)
    return (call.x, call.scale, *(() if call.bias is None else (call.bias,)), call.result)


def _convolution_fault(call: Convolution) -> str | None:
    dtype = call.x.dtype
    others = {view.dtype for view in views_of(call)}
    if dtype not in TYPES or others != {dtype}:
        return "element types " + ", ".join(sorted(d.value for d in others))
    if call.arithmetic not in ("", "tf32") or (call.arithmetic and dtype is not DType.FLOAT32):
        return f"arithmetic {call.arithmetic!r} on {dtype.value}"
    plane = call.x.rank - 2
    if plane not in (1, 2, 3) or call.w.rank != call.x.rank or call.result.rank != call.x.rank:
        return f"images of rank {call.x.rank}"
    if (len(call.strides), len(call.pads), len(call.dilations)) != (plane, 2 * plane, plane):
        return f"strides {call.strides}, pads {call.pads}, dilations {call.dilations} for {plane} axes of the plane"
    if min(call.pads) < 0:
        return f"pads {call.pads}"
    channels, filters = call.x.shape[1], call.w.shape[0]
    if call.w.shape[1] * call.groups != channels or filters % call.groups:
        return f"{channels} channels and {filters} filters in {call.groups} groups"
    if call.bias is not None and (call.bias.shape != (filters,) or _step(call.bias, 0) != 1):
        return f"a bias of shape {list(call.bias.shape)}, strides {list(call.bias.strides)}"
    for name, view in (("x", call.x), ("w", call.w), ("result", call.result)):
        if not _is_image(view):
            return f"{name} of shape {list(view.shape)} has strides {list(view.strides)}"
    return None if call.addend is None else addend_fault(call, call.addend)


def addend_fault(call: Convolution, addend: View) -> str | None:
    """None where a convolution may add a tensor at its end, else the reason why not."""
    if not forms_addend(call.x.dtype, call.arithmetic):
        return f"an addend in {call.x.dtype.value}" + ("" if call.arithmetic else " without TF32")
    if addend.shape != call.result.shape or addend.dtype is not call.x.dtype:
        return f"an addend of {addend.dtype.value}{list(addend.shape)} to {list(call.result.shape)}"
    if call.groups != 1:
        return f"an addend to a convolution in {call.groups} groups"
    filters, channels = call.w.shape[:2]
    if any(count * call.x.dtype.itemsize % WIDEST_ACCESS for count in (filters, channels)):
        return f"an addend to {filters} filters over {channels} channels"
    for name, view in (("x", call.x), ("w", call.w), ("addend", addend), ("result", call.result)):
        if not _is_image(view) or _step(view, 1) != 1:
            return f"an addend, and {name} of shape {list(view.shape)} has strides {list(view.strides)}"
    return None


def _is_image(view: View) -> bool:
    """Return whether images lie with their plane or their channels innermost, one after the other, gaps allowed."""
    rank = view.rank
    for order in ((0, *range(1, rank)), (0, *range(2, rank), 1)):
        least = 1
        for axis in reversed(order):
            step = _step(view, axis)
            if step is not None and (step < least or (least == 1 and step != 1)):
                break
            if step is not None:
                least = step * view.shape[axis]
        else:
            return True
    return False


def _step(view: View, axis: int) -> int | None:
    """The stride of an axis; None where it has one element and any stride will do."""
    return view.strides[axis] if view.shape[axis] != 1 else None


def _attention_fault(call: Attention) -> str | None:
    dtypes = {view.dtype for view in (call.q, call.k, call.v, call.result)}
    if len(dtypes) != 1 or call.q.dtype not in _HALVES:
        return "attention in " + ", ".join(sorted(d.value for d in dtypes)) + ", not float16 or bfloat16"
    if any(view.rank != 4 for view in views_of(call)):
        return "operands that are not of rank 4"
    (batch, heads, queries, width), keys = call.q.shape, call.k.shape[2]
    depth = call.v.shape[3]
    if call.k.shape != (batch, call.k.shape[1], keys, width) or call.v.shape != (*call.k.shape[:3], depth):
        return f"q, k, v of shapes {list(call.q.shape)}, {list(call.k.shape)}, {list(call.v.shape)}"
    if heads % call.k.shape[1]:
        return f"{heads} heads of q over {call.k.shape[1]} of k and v"
    if width % 8 or depth % 8 or max(width, depth) > WIDEST_HEAD:
        return f"heads {width} and {depth} wide, which are no multiples of 8 up to {WIDEST_HEAD}"
    for name, view in (("q", call.q), ("k", call.k), ("v", call.v), ("result", call.result)):
        if _step(view, 3) != 1 or 0 in (_step(view, axis) for axis in range(3)):
            return f"{name} has strides {list(view.strides)}"
    if call.mask is not None:
        if call.mask.dtype is not call.q.dtype:
            return f"a mask of {call.mask.dtype.value}"
        if any(
            have not in (1, want) for have, want in zip(call.mask.shape, (batch, heads, queries, keys), strict=True)
        ):
            return f"a mask of shape {list(call.mask.shape)}"
        if call.mask.shape[3] != keys or _step(call.mask, 3) not in (1, None):
            return f"a mask with strides {list(call.mask.strides)}"
    return None


def _normalisation_fault(call: Normalisation) -> str | None:
    dtype = call.x.dtype
    if dtype not in TYPES or call.result.dtype is not dtype:
        return f"a normalisation of {dtype.value} to {call.result.dtype.value}"
    if call.x.rank != 2 or call.result.shape != call.x.shape:
        return f"rows of shape {list(call.x.shape)} to {list(call.result.shape)}"
    for name, view in (("x", call.x), ("result", call.result)):
        if not view.is_contiguous:
            return f"{name} of shape {list(view.shape)} has strides {list(view.strides)}"
    vectors = {"scale": call.scale, **({} if call.bias is None else {"bias": call.bias})}
    for name, view in vectors.items():
        if view.shape != call.x.shape[1:] or _step(view, 0) not in (1, None):
            return f"a {name} of shape {list(view.shape)}, strides {list(view.strides)}"
        if view.dtype is not call.scale.dtype or view.dtype not in (dtype, DType.FLOAT32):
            return f"a {name} of {view.dtype.value}"
    return None


def plan_text(name: str, version: str) -> str:
    """A plan of cuDNN's as text: the version of cuDNN, and the plan's name."""
    return f"{NAME} {version} {name}"


def parse_plan(plan: str, version: str) -> str:
    """The name of a plan from text; BackendError for one of another version, or text that is no plan of cuDNN's.

    >>> parse_plan("cudnn 92800 eng57_k2=2", "92800")
    'eng57_k2=2'
    """
    library, _, rest = plan.partition(" ")
    of, _, name = rest.partition(" ")
    if library != NAME or not name:
        raise BackendError(f"{plan!r} is no plan of cuDNN's", expected=f"{NAME} VERSION NAME")
    check_plan_version("cuDNN", of, version)
    return name


def described(call: Call) -> str:
    """The call, as messages name it."""
    if isinstance(call, Convolution):
        named = {"bias": call.bias is not None, "addend": call.addend is not None, "relu": call.relu}
        ending = "".join(f" + {name}" for name, there in named.items() if there)
        return f"a convolution of {call.x.dtype.value}{list(call.x.shape)} by {list(call.w.shape)}{ending}"
    if isinstance(call, Normalisation):
        which = "RMS" if call.bias is None else "layer"
        return f"a {which} normalisation of {call.x.dtype.value}{list(call.x.shape)}"
    masked = (" with a mask" if call.mask is not None else "") + (", causal" if call.causal else "")
    return f"attention of {call.q.dtype.value}{list(call.q.shape)} over {list(call.k.shape)}{masked}"
