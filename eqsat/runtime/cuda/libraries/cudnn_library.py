"""Convolutions, attention and normalisations by cuDNN, through its frontend's graphs: every plan it has."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from eqsat.errors import BackendError, first_line
from eqsat.language.terms.types import DType
from eqsat.runtime.cuda.libraries.calls import Attention, Convolution, Normalisation
from eqsat.runtime.cuda.libraries.cudnn import (
    NAME,
    TYPES,
    Call,
    described,
    expressible,
    parse_plan,
    plan_text,
    views_of,
)
from eqsat.runtime.cuda.libraries.library import WORKSPACE_BYTES, Address, opened
from eqsat.runtime.kernels.view import View

#: Versions of the frontend that have the calls made here: from 1.27 on none states where a tensor lies in memory.
FRONTEND = ((1, 19), (1, 27))


def library() -> Cudnn:
    """The library, opened; BackendError that names a part that is missing, or of a version that does not fit."""
    return opened(
        "cudnn",
        Cudnn,
        called="cuDNN",
        package="nvidia-cudnn-frontend, and cuDNN 9 of the CUDA that the driver supports",
        version="cuDNN 9 of the CUDA that the driver supports",
        check=lambda cudnn: check_version(str(getattr(cudnn, "__version__", ""))),
    )


def check_version(version: str) -> None:
    """BackendError for a frontend of a version whose calls differ.

    >>> check_version("1.23.0")
    """
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if not FRONTEND[0] <= numbers < FRONTEND[1]:
        low, high = (".".join(map(str, v)) for v in FRONTEND)
        raise BackendError(
            f"nvidia-cudnn-frontend is of version {version or 'unknown'}",
            expected=f"{low} or later, below {high}",
            remedy=f"pip install 'nvidia-cudnn-frontend>={low},<{high}'",
        )


class Cudnn:
    """cuDNN with a handle of its own."""

    name = NAME

    def __init__(self, cudnn: Any) -> None:
        self._cudnn = cudnn
        self.version = str(cudnn.backend_version())
        self._handle: int | None = cudnn.create_handle()

    def plans(self, call: Call, address: Address) -> tuple[str, ...]:
        """Every plan of cuDNN's that can be built for a call, its own choice first; empty where it has none."""
        stated = self._graph(call)
        if stated is None:
            return ()
        graph = stated.graph
        graph.build_plans(self._cudnn.build_plan_policy.ALL)
        usable = [i for i in range(graph.get_execution_plan_count()) if _is_built(graph, i)]
        return tuple(dict.fromkeys(plan_text(graph.get_plan_name_at_index(i), self.version) for i in usable))

    def prepare(self, call: Call, address: Address, plan: str | None = None) -> PreparedGraph:
        """The call by a plan, or by the first of cuDNN's that can be built."""
        stated = self._graph(call)
        wanted = None if plan is None else parse_plan(plan, self.version)
        index = None if stated is None else self._built(stated.graph, wanted)
        if stated is None or index is None:
            which = "no plan" if plan is None else f"no plan {plan!r}"
            raise BackendError(f"cuDNN {self.version} has {which} for {described(call)}")
        pointers = {tensor: address(view) for tensor, view in zip(stated.tensors, views_of(call), strict=True)}
        text = plan_text(stated.graph.get_plan_name_at_index(index), self.version)
        return PreparedGraph(self._cudnn, self._handle, stated.graph, index, pointers, text, stated.numbers)

    def device(self) -> Mapping[str, Any]:
        """The GPU that graphs are stated for, by its handle."""
        return {"handle": self._handle}

    def close(self) -> None:
        """Give the handle back."""
        if self._handle is not None:
            self._cudnn.destroy_handle(self._handle)
            self._handle = None

    def _graph(self, call: Call) -> Stated | None:
        """The call as a graph with its plans listed; None where cuDNN supports none."""
        fault = expressible(call)
        if fault is not None:
            raise BackendError(f"cuDNN does not compute {described(call)}: {fault}")
        cudnn = self._cudnn
        stated = state(cudnn, call, **self.device())
        graph, modes = stated.graph, cudnn.heur_mode
        try:
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([modes.A, modes.B, modes.FALLBACK])
            graph.deselect_workspace_greater_than(WORKSPACE_BYTES)
            graph.deselect_numeric_notes(_unwanted(cudnn, call))
            graph.check_support()
        except cudnn.cudnnGraphNotSupportedError:
            return None
        except RuntimeError as error:
            raise BackendError(f"cuDNN {self.version} fails at {described(call)}: {first_line(error)}") from error
        return stated

    def _built(self, graph: Any, wanted: str | None) -> int | None:
        for index in range(graph.get_execution_plan_count()):
            if wanted is not None and graph.get_plan_name_at_index(index) != wanted:
                continue
            # A plan that the heuristics list may still not be one for this device.
            with suppress(self._cudnn.cudnnGraphNotSupportedError, RuntimeError):
                graph.build_plan_at_index(index)
                return index
        return None


def _is_built(graph: Any, index: int) -> bool:
    """Return whether a plan was built; cuDNN has no workspace to name for one that was not."""
    try:
        return int(graph.get_workspace_size_plan_at_index(index)) >= 0
    except RuntimeError:
        return False


def _unwanted(cudnn: Any, call: Call) -> list[Any]:
    """Arithmetic that was not asked for: narrower operands or sums, TF32 where float32 stands."""
    notes = cudnn.numerical_note
    unwanted = [notes.DOWN_CONVERT_INPUTS, notes.REDUCED_PRECISION_REDUCTION]
    exact = isinstance(call, Convolution) and call.x.dtype is DType.FLOAT32 and not call.arithmetic
    return [*unwanted, notes.TENSOR_CORE] if exact else unwanted


@dataclass(frozen=True)
class Stated:
    """A call as a graph of cuDNN's: its tensors in the order of the call's views, and those that hold a number."""

    graph: Any
    tensors: list[Any]
    numbers: Mapping[Any, ctypes.c_float] = field(default_factory=dict)


def state(cudnn: Any, call: Call, **device: Any) -> Stated:
    """A call as a graph of cuDNN's.

    `device` is a handle of the device that the graph is to run on, or its compute capability as `sm_version`, with its
    other properties or without.
    """
    stated = _state(cudnn, call, **device)
    for tensor, view in zip(stated.tensors, views_of(call), strict=True):
        # The frontend takes tensors to lie at multiples of 16 bytes unless told; parts of other tensors need not.
        tensor.set_alignment(view.alignment)
    return stated


def _state(cudnn: Any, call: Call, **device: Any) -> Stated:
    dtype = getattr(cudnn.data_type, TYPES[call.result.dtype])
    single = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(io_data_type=dtype, intermediate_data_type=single, compute_data_type=single, **device)
    if isinstance(call, Convolution):
        return Stated(graph, _state_convolution(graph, call, dtype))
    if isinstance(call, Attention):
        return Stated(graph, _state_attention(cudnn, graph, call, dtype))
    return _state_normalisation(cudnn, graph, call)


def _state_convolution(graph: Any, call: Convolution, dtype: Any) -> list[Any]:
    plane = call.x.rank - 2
    # cuDNN has planes of two axes or more; one of one axis gets another of one element.
    lift = 1 if plane == 1 else 0
    x, w = (graph.tensor(name=n, data_type=dtype, **_placed(v, lift)) for n, v in (("x", call.x), ("w", call.w)))
    tensor = graph.conv_fprop(
        image=x,
        weight=w,
        pre_padding=[0] * lift + list(call.pads[:plane]),
        post_padding=[0] * lift + list(call.pads[plane:]),
        stride=[1] * lift + list(call.strides),
        dilation=[1] * lift + list(call.dilations),
    )
    tensors = [x, w]
    added = []
    if call.addend is not None:
        # Before the bias: so cuDNN has it in its own patterns, whose sums are in float32 in any order.
        added = [graph.tensor(name="addend", data_type=dtype, **_placed(call.addend, lift))]
        tensor = graph.add(a=tensor, b=added[0])
    if call.bias is not None:
        channels = call.bias.shape[0]
        rank = call.x.rank + lift
        dims, strides = [1, channels, *[1] * (rank - 2)], [channels, 1, *[channels] * (rank - 2)]
        bias = graph.tensor(name="bias", data_type=dtype, dim=dims, stride=strides)
        tensor = graph.bias(input=tensor, bias=bias)
        tensors.append(bias)
    if call.relu:
        tensor = graph.relu(input=tensor)
    return [*tensors, *added, _finish(tensor, call.result, dtype, lift)]


def _state_attention(cudnn: Any, graph: Any, call: Attention, dtype: Any) -> list[Any]:
    views = {"q": call.q, "k": call.k, "v": call.v}
    tensors = [graph.tensor(name=n, data_type=dtype, **_placed(v)) for n, v in views.items()]
    options: dict[str, Any] = {}
    if call.mask is not None:
        options["bias"] = graph.tensor(name="mask", data_type=dtype, **_placed(_without_repeats(call.mask)))
        tensors.append(options["bias"])
    if call.causal:
        options["diagonal_alignment"] = cudnn.diagonal_alignment.TOP_LEFT
        options["diagonal_band_right_bound"] = 0
    q, k, v = tensors[:3]
    average, _ = graph.sdpa(q=q, k=k, v=v, generate_stats=False, attn_scale=call.scale, **options)
    return [*tensors, _finish(average, call.result, dtype)]


def _state_normalisation(cudnn: Any, graph: Any, call: Normalisation) -> Stated:
    """Rows are images of one element each, with the elements of a row as channels."""
    x, scale, *bias = (
        graph.tensor(name=n, data_type=getattr(cudnn.data_type, TYPES[v.dtype]), **_placed(_as_image(v)))
        for n, v in zip(("x", "scale", "bias"), views_of(call)[:-1], strict=False)
    )
    single = cudnn.data_type.FLOAT
    epsilon = graph.tensor(name="epsilon", data_type=single, dim=[1] * 4, stride=[1] * 4, is_pass_by_value=True)
    options = {"norm_forward_phase": cudnn.norm_forward_phase.INFERENCE, "epsilon": epsilon}
    if bias:
        normalised, *_ = graph.layernorm(input=x, scale=scale, bias=bias[0], **options)
    else:
        normalised, *_ = graph.rmsnorm(input=x, scale=scale, **options)
    result = _finish(normalised, _as_image(call.result), getattr(cudnn.data_type, TYPES[call.result.dtype]))
    return Stated(graph, [x, scale, *bias, result], {epsilon: ctypes.c_float(call.epsilon)})


def _as_image(view: View) -> View:
    """Rows, or one row, with two axes of one element after them."""
    rows = view if view.rank == 2 else view.broadcast_to((1, *view.shape))
    return replace(rows, shape=(*rows.shape, 1, 1), strides=(*rows.strides, 0, 0))


def _finish(tensor: Any, view: View, dtype: Any, lift: int = 0) -> Any:
    placed = _placed(view, lift)
    return tensor.set_output(True).set_data_type(dtype).set_dim(placed["dim"]).set_stride(placed["stride"])


def _placed(view: View, lift: int = 0) -> dict[str, list[int]]:
    """Dims and strides as cuDNN takes them: an axis of one element has the stride that it would have if it had more.

    `lift` axes of one element are put before the last.
    """
    shape = [*view.shape[:-1], *[1] * lift, view.shape[-1]]
    given = [*view.strides[:-1], *[0] * lift, view.strides[-1]]
    strides = list(given)
    for axis in reversed(range(len(shape))):
        if shape[axis] == 1:
            strides[axis] = _stride_of_one(shape, given, axis)
    return {"dim": shape, "stride": strides}


def _stride_of_one(shape: Sequence[int], strides: Sequence[int], axis: int) -> int:
    """The stride of an axis of one element: 1 for channels where these are innermost, else the elements within it."""
    within = [strides[a] * shape[a] for a in range(len(shape)) if shape[a] != 1]
    inner = [s for a, s in enumerate(strides) if shape[a] != 1]
    if axis == 1 and inner and 1 not in inner:
        return 1
    if axis == 0:
        return max(within, default=1)
    after = [strides[a] * shape[a] for a in range(axis + 1, len(shape)) if shape[a] != 1]
    lead = [strides[1] * shape[1]] if axis > 1 and shape[1] != 1 and strides[1] == 1 else []
    return max([*after, *lead], default=1)


def _without_repeats(view: View) -> View:
    """The view with axes that repeat one element cut to it: graphs repeat those by themselves."""
    for axis in range(view.rank):
        if view.strides[axis] == 0 and view.shape[axis] > 1:
            view = view.sliced(axis, 0, 1)
    return view


@dataclass(eq=False)
class PreparedGraph:
    """A graph of cuDNN's with its plan built; `numbers` are read when it is launched."""

    cudnn: Any
    handle: int | None
    graph: Any
    index: int
    pointers: dict[Any, int]
    plan: str
    numbers: Mapping[Any, ctypes.c_float]

    def __post_init__(self) -> None:
        self.workspace = int(self.graph.get_workspace_size_plan_at_index(self.index))
        self._places = self.pointers | {tensor: ctypes.addressof(number) for tensor, number in self.numbers.items()}

    def launch(self, stream: int, workspace: int) -> None:
        """Put the plan's kernels on a stream."""
        self.cudnn.set_stream(handle=self.handle, stream=stream)
        self.graph.execute_plan_at_index(self._places, workspace, self.index, handle=self.handle)

    def at(self, call: Call, address: Address) -> PreparedGraph:
        """The same plan at other addresses, without building it once more, which takes long."""
        pointers = {tensor: address(view) for tensor, view in zip(self.pointers, views_of(call), strict=True)}
        return replace(self, pointers=pointers)

    def close(self) -> None:
        """Forget the graph, which frees its resources."""
        self.graph = None
        self.pointers = self._places = {}
