"""Graphs to ONNX models, at the opset they came with or a chosen one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import partial
from pathlib import Path

from onnx import ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto, checker, defs, helper, shape_inference

from eqsat.errors import ExportModelError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.comprehension.definitions.definition import definition_of
from eqsat.language.comprehension.graphs.operators import function_of
from eqsat.language.graphs.fold import FOLDED_BYTES, holds_symbols
from eqsat.language.graphs.interpret import run_node
from eqsat.language.onnx.files import writer
from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.onnx.files.protos import captured, names_bound, plain_name, rename_captured, subgraphs, value_info
from eqsat.language.onnx.files.reader import OLDEST_OPSET, newest_opset
from eqsat.language.onnx.files.tensors import tensor_of
from eqsat.language.onnx.fused.heads import Joined, joined_heads
from eqsat.language.onnx.fused.operators import DOMAIN, FUSED, write_joined
from eqsat.language.onnx.microsoft.records import FusedRecord, restored
from eqsat.language.onnx.operators.export_nn import with_flat_distributions
from eqsat.language.onnx.operators.export_table import exporter_of
from eqsat.language.onnx.write.availability import DEFAULT_OPSET, opset_of
from eqsat.language.onnx.write.exporting import ExportTarget, Model
from eqsat.language.ops import OPS
from eqsat.language.terms import OPAQUE, Array, Constant, Graph, Node, Sym, TensorType, ValueType
from eqsat.language.terms.formulas import reader, text_of
from eqsat.system.deadline import check

#: Before this version of the format every initializer had to be an input too.
_LEAST_IR = 4
#: The version that brought local functions.
_FUNCTIONS_IR = 8
#: Tensors up to this size take part in checking a model.
_TRIAL_BYTES = 1 << 12


def to_model(graph: Graph, opset: int | None = None) -> ModelProto:
    """The graph as an ONNX model with all its tensors; ExportModelError where the opset cannot express it."""
    skeleton, tensors = assemble(graph, opset)
    skeleton.graph.initializer.extend(tensor_of(name, constant) for name, constant in tensors.items())
    return skeleton


def to_bytes(graph: Graph, opset: int | None = None) -> bytes:
    """The serialised model, made with one copy of its tensors; ExportModelError above 2 GB."""
    return writer.whole(*assemble(graph, opset), where=graph.name)


#: Attention as operators of ONNX Runtime's own: a model that came with them may leave with others of them.
_HEADS = frozenset((DOMAIN, name) for name in ("Attention", "MultiHeadAttention"))


def save(graph: Graph, path: str | Path, opset: int | None = None) -> None:
    """Write the graph as an ONNX file, atomically: the file is there in full or not at all.

    Tensors go to a file beside it, PATH.data, where they take over 2 GB or the model they came from kept its own so.
    ExportModelError where the target cannot be written, or is the model that was read or one of its data files.
    """
    origin = origin_of(graph)
    writer.save(*assemble(graph, opset), Path(path), sources=origin.files, external=origin.external)


def assemble(graph: Graph, opset: int | None = None) -> tuple[ModelProto, dict[str, Constant]]:
    """A model without its initializers, and these by name."""
    return _Export(graph, opset).model()


def origin_of(graph: Graph) -> OnnxOrigin:
    """Where a graph came from; for one that was built in Python, an empty model at the opset such are written at."""
    if isinstance(graph.origin, OnnxOrigin):
        return graph.origin
    return OnnxOrigin(ModelProto(producer_name="eqsat").SerializeToString(), DEFAULT_OPSET, _LEAST_IR)


def _remedy(op: str) -> str:
    """The remedy for an operator that ONNX lacks: a law, or what a comprehension has that no operator has."""
    function = function_of(op)
    if function is None:
        return f'state it where {op!r} is declared: laws=["{op}(x, …) => …"]'
    return f"write it otherwise: {definition_of(function).reason or 'its definition does not hold for these shapes'}"


class _Export:
    def __init__(self, graph: Graph, opset: int | None) -> None:
        self.origin = origin_of(graph)
        self.opset = opset if opset is not None else opset_of(graph)
        if not OLDEST_OPSET <= self.opset <= newest_opset():
            raise ExportModelError(
                f"opset {self.opset}",
                where=graph.name,
                expected=f"opset {OLDEST_OPSET} to {newest_opset()}",
                remedy="pass another opset, or none to keep the model's own",
            )
        # ONNX's own attention refuses to have nothing to look at, which ONNX Runtime's does not.
        came = any((r.domain, r.op_type) in _HEADS for r in self.origin.records)
        self.contrib = self.origin.contrib or came
        same = [r for r in self.origin.records if self._means_the_same(r)]
        self.graph = with_flat_distributions(_with_terms_computed(restored(graph, same)), self.opset)
        self.opaque = {id(n): NodeProto.FromString(n.attrs["proto"]) for n in self.graph.nodes if n.op == OPAQUE}
        inner = {name for proto in self.opaque.values() for name in names_bound(proto)}
        self.out = Model(self.graph, self.opset, {*graph.inputs, *graph.outputs, *inner})
        self.names = self._named()
        self.joined: Mapping[str, Joined] = {}
        self.skipped: Set[str] = frozenset()

    def _means_the_same(self, record: FusedRecord) -> bool:
        """True if a recorded operator is the same in the opset chosen."""
        own = record.domain in ("", "ai.onnx")
        return not own or _version(record.op_type, self.opset) == _version(record.op_type, self.origin.opset)

    def model(self) -> tuple[ModelProto, dict[str, Constant]]:
        """The model and its initializers."""
        for value in self.graph.inputs:
            self.out.dims.offer(value, self.graph.type(value))
        if self.contrib:
            self.joined, self.skipped = joined_heads(self.graph, self._is_fused)
        for node in self.graph.nodes:
            check()
            if node.outputs[0] in self.joined:
                self._write_joined(self.joined[node.outputs[0]])
            elif node.outputs[0] not in self.skipped:
                self._write(node)
        for name, value in self.graph.outputs.items():
            if self.names[value] != name:
                self.out.add("Identity", [self.names[value]], [name])
        return self._wrapped()

    def _named(self) -> dict[str, str]:
        """Every value's name in the model; an output has its own name where it can."""
        names = {value: value for value in self.graph.inputs}
        producers = self.graph.producers
        for name, value in self.graph.outputs.items():
            if value not in names and (value in producers or value == name):
                names[value] = name
        results = [o for n in self.graph.nodes for o in n.outputs if o]
        for value in (*self.graph.constants, *results):
            if value not in names:
                names[value] = self.out.fresh(value)
        return names

    def _write(self, node: Node) -> None:
        inputs = [self.names[v] if v is not None else "" for v in node.inputs]
        outputs = [self.names[v] if v else "" for v in node.outputs]
        if node.op == OPAQUE:
            self._write_opaque(node, inputs, outputs)
        elif (write := exporter_of(node.op)) is None:
            raise ExportModelError(
                f"{node.describe()} has no counterpart in ONNX",
                where=self.graph.name,
                expected="operators with an entry in the export table, or with a law that defines them by such",
                remedy=_remedy(node.op),
            )
        elif self._is_fused(node):
            FUSED[node.op].write(ExportTarget(self.out, node, inputs, outputs))
        else:
            write(ExportTarget(self.out, node, inputs, outputs))
        for value, name in zip(node.outputs, outputs, strict=True):
            if value:
                self.out.dims.offer(name, self.graph.type(value))

    def _is_fused(self, node: Node) -> bool:
        """True if a node is written as an operator of ONNX Runtime's own."""
        if not self.contrib or node.op not in FUSED:
            return False
        types = [self.graph.type(value) if value is not None else None for value in node.inputs]
        return FUSED[node.op].takes(node.attrs, [type if isinstance(type, TensorType) else None for type in types])

    def _write_joined(self, joined: Joined) -> None:
        """Write an attention of heads that lie side by side."""
        inputs = [self.names[v] if v is not None else "" for v in joined.node.inputs]
        (value,) = joined.node.outputs
        target = ExportTarget(self.out, joined.node, inputs, [self.names[value]])
        constants = [[self.graph.constants[v] for v in values] for values in (joined.weights, joined.biases)]
        write_joined(target, joined.heads, *constants)
        self.out.dims.offer(self.names[value], self.graph.type(value))

    def _write_opaque(self, node: Node, inputs: list[str], outputs: list[str]) -> None:
        proto = self.opaque[id(node)]
        self._check_opset(proto, node)
        explicit = len(inputs) - node.attrs["captures"]
        renamed = {old: new for old, new in zip(captured(proto), inputs[explicit:], strict=True) if old != new}
        if renamed:
            rename_captured(proto, renamed)
        if list(proto.input) != inputs[:explicit]:
            proto.input[:] = inputs[:explicit]
        if list(proto.output) != outputs:
            proto.output[:] = outputs
        if proto.name and (label := self.out.label(proto.name)) != proto.name:
            proto.name = label
        self.out.nodes.append(proto)

    def _check_opset(self, proto: NodeProto, node: Node) -> None:
        """An opaque node means what it meant only where its operators are the same in the opset chosen."""
        if self.opset == self.origin.opset:
            return
        inner = [n for g in subgraphs(proto) for n in g.node]
        if proto.domain in ("", "ai.onnx") and (
            _version(proto.op_type, self.opset) != _version(proto.op_type, self.origin.opset)
        ):
            raise ExportModelError(
                f"{node.describe()} is opaque, and {proto.op_type} differs between opset {self.origin.opset} "
                f"and {self.opset}",
                where=self.graph.name,
                expected="the model's own opset, or one where the operator is the same",
                remedy=f"pass opset={self.origin.opset}",
            )
        for each in inner:
            self._check_opset(each, node)

    def _wrapped(self) -> tuple[ModelProto, dict[str, Constant]]:
        proto = ModelProto.FromString(self.origin.model)
        graph = proto.graph
        graph.name = self.graph.name
        graph.node.extend(self.out.nodes)
        self._set_versions(proto)
        tensors = self._initializers(proto)
        for value in self.graph.inputs:
            graph.input.append(self._info(value, self.graph.type(value), self.origin.inputs))
        for name in self._listed():
            type = self.graph.type(self.graph.outputs[name])
            graph.output.append(self._info(name, type, self.origin.outputs))
        self._state_values(proto)
        known = set(tensors) | {o for n in graph.node for o in n.output} | set(self.graph.inputs)
        annotations = [a for a in graph.quantization_annotation if a.tensor_name in known]
        del graph.quantization_annotation[:]
        graph.quantization_annotation.extend(annotations)
        if self.opset != self.origin.opset:
            self._check_valid(proto, tensors)
        return proto, tensors

    def _listed(self) -> Sequence[str]:
        """The outputs by name, those more than once that the model lists so."""
        listed = [name for name in self.origin.listed if name in self.graph.outputs]
        return listed if list(dict.fromkeys(listed)) == list(self.graph.outputs) else list(self.graph.outputs)

    def _check_valid(self, model: ModelProto, tensors: Mapping[str, Constant]) -> None:
        """ExportModelError where the opset chosen does not allow some element type or attribute."""
        trial = ModelProto()
        trial.CopyFrom(model)
        self._state_shapes(trial)
        for name, constant in tensors.items():
            if constant.nbytes <= _TRIAL_BYTES:
                trial.graph.initializer.append(tensor_of(name, constant))
            elif name not in self.graph.inputs:
                # Its values do not matter here, its type does.
                trial.graph.input.append(value_info(name, constant.type))
        try:
            checker.check_model(trial, full_check=True)
        except (checker.ValidationError, shape_inference.InferenceError) as fault:
            raise ExportModelError(
                f"opset {self.opset} cannot express the graph: {str(fault).strip().splitlines()[0]}",
                where=self.graph.name,
                expected="operators and element types of that opset",
                remedy="pass a newer opset",
            ) from fault

    def _state_shapes(self, trial: ModelProto) -> None:
        """State the shapes of outputs, without which the checker refuses a model; one of unknown rank is left out."""
        outputs = list(trial.graph.output)
        del trial.graph.output[:]
        for info in outputs:
            type = self.graph.type(self.graph.outputs[info.name])
            if info.type.WhichOneof("value") != "tensor_type" or info.type.tensor_type.HasField("shape"):
                trial.graph.output.append(info)
            elif isinstance(type, TensorType) and type.shape is not None:
                trial.graph.output.append(value_info(info.name, type))

    def _set_versions(self, proto: ModelProto) -> None:
        imports = [o for o in proto.opset_import if o.domain not in ("", "ai.onnx")]
        del proto.opset_import[:]
        new = {n.domain for n in proto.graph.node} - {o.domain for o in imports} - {"", "ai.onnx"}
        imports += [OperatorSetIdProto(domain=domain, version=1) for domain in sorted(new)]
        proto.opset_import.extend([OperatorSetIdProto(domain="", version=self.opset), *imports])
        own = [o for o in proto.opset_import if o.domain in ("", "ai.onnx.ml")]
        least = helper.find_min_ir_version_for(own, ignore_unknown=True)
        # A model written for an older opset is meant for older runtimes, which refuse newer versions of the format.
        own_version = self.origin.ir_version if self.opset >= self.origin.opset else 0
        proto.ir_version = max(own_version, _FUNCTIONS_IR if proto.functions else _LEAST_IR, least)

    def _initializers(self, proto: ModelProto) -> dict[str, Constant]:
        """The tensors that something reads; sparse ones that nothing changed are put back as they were.

        A sparse one that is an output is written in full where it was none: ONNX Runtime would hand it out as sparse.
        """
        written = (n for n in self.graph.nodes if n.outputs[0] not in self.skipped)
        read = {v for n in written for v in n.inputs if v is not None} | set(self.graph.outputs.values())
        sparse = {id(c): data for c, data in self.origin.sparse.values()}
        tensors = {name: c for name, c in self.origin.defaults.items() if name in self.graph.inputs}
        for value, constant in self.graph.constants.items():
            if value not in read:
                continue
            handed_out = self.names[value] in self.graph.outputs and self.names[value] not in self.origin.sparse
            if id(constant) in sparse and not handed_out:
                added = proto.graph.sparse_initializer.add()
                added.ParseFromString(sparse[id(constant)])
                added.values.name = self.names[value]
            else:
                tensors[self.names[value]] = constant
        return tensors | self.out.initializers

    def _info(self, name: str, type: ValueType, stated: Mapping[str, bytes]) -> ValueInfoProto:
        known = stated.get(name)
        return ValueInfoProto.FromString(known) if known else value_info(name, type, self._dim_text)

    def _dim_text(self, dim: Sym) -> str:
        """The text of a dim: its name, or a formula that is read back as the same dim; none for others."""
        if name := plain_name(dim):
            return name
        shapes = [t.shape or () for t in map(self.graph.type, self.graph.inputs) if isinstance(t, TensorType)]
        text = text_of(dim)
        read = reader([plain_name(d) for d in shape if isinstance(d, Sym)] for shape in shapes)
        return text if read(text) == dim else ""

    def _state_values(self, proto: ModelProto) -> None:
        """Write the types that the model stated of inner values that are still there."""
        producers = self.graph.producers
        for name, data in self.origin.values.items():
            if self.names.get(name) == name and name in producers and name not in self.graph.outputs:
                info = ValueInfoProto.FromString(data)
                if _agrees(info, self.graph.type(name)):
                    proto.graph.value_info.append(info)


def _agrees(info: ValueInfoProto, type: ValueType) -> bool:
    """False where a name was given to a tensor of another type since."""
    if not isinstance(type, TensorType) or not info.type.HasField("tensor_type"):
        return True
    if not info.type.tensor_type.HasField("shape") or type.shape is None:
        return True
    dims = info.type.tensor_type.shape.dim
    return len(dims) == type.rank and all(
        not isinstance(k, int) or not d.HasField("dim_value") or d.dim_value == k
        for d, k in zip(dims, type.shape, strict=True)
    )


def _version(op_type: str, opset: int) -> int:
    return int(defs.get_schema(op_type, opset, "").since_version) if defs.has(op_type, opset, "") else 0


def _with_terms_computed(graph: Graph) -> Graph:
    """The graph with constant terms (identity kernels, enlarged filters …) as constants; large fills stay small."""
    constants = dict(graph.constants)
    nodes = []
    for node in graph.nodes:
        type = graph.type(node.outputs[0])
        computable = node.op in OPS and OPS[node.op].generated and all(v in constants for v in node.inputs)
        if not computable or not isinstance(type, TensorType) or holds_symbols(node.attrs.values()):
            nodes.append(node)
            continue
        constant = Constant(type, partial(_term, node, constants, type))
        if node.op == "fill" and constant.nbytes > FOLDED_BYTES:
            nodes.append(node)
        else:
            constants[node.outputs[0]] = constant
    if len(nodes) == len(graph.nodes):
        return graph
    return Graph(graph.name, graph.inputs, graph.outputs, tuple(nodes), constants, graph.types, graph.origin)


def _term(node: Node, constants: dict[str, Constant], type: TensorType) -> Array:
    operands = [constants[v] for v in node.inputs if v is not None]
    arrays: list[Array] = run_node(Floats(), node, [c.array for c in operands], [c.type for c in operands], [type])
    return arrays[0]
