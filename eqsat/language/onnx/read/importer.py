"""ONNX models to graphs: operators by table, everything else kept as opaque nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from onnx import GraphProto, ModelProto, NodeProto, TypeProto

import eqsat.language.ops  # noqa: F401  (registers the operators)
from eqsat.errors import ImportModelError, ShapeError
from eqsat.language.comprehension.calls import DOMAIN as COMPREHENSIONS
from eqsat.language.graphs.fold import Folder, fresh_beside
from eqsat.language.onnx.control.inference import Control, control
from eqsat.language.onnx.control.inlining import Inlined, reason_to_stay, taken_branch, unrolled
from eqsat.language.onnx.control.scope import BodyScope, Budget, as_model
from eqsat.language.onnx.files.origin import OnnxOrigin, SettledControl
from eqsat.language.onnx.files.protos import captured, names_in, tensors_within, value_type
from eqsat.language.onnx.files.reader import Source, opsets_of, read
from eqsat.language.onnx.files.tensors import constant_of, dense_of, load_external
from eqsat.language.onnx.microsoft.records import FusedRecord, record
from eqsat.language.onnx.microsoft.types import result_types as own_types
from eqsat.language.onnx.ml.types import result_types as ml_types
from eqsat.language.onnx.operators.import_table import BEYOND_TENSORS, FUSED, importers_of, reason_for
from eqsat.language.onnx.read import bodies as functions
from eqsat.language.onnx.read import opaque, structure
from eqsat.language.onnx.read.definitions import definition
from eqsat.language.onnx.read.importing import Call, Unreadable, Unsupported, may_hold_nothing
from eqsat.language.terms import OPAQUE, UNKNOWN, Attrs, Constant, DType, Graph, Names, Node, Sym, TensorType, ValueType
from eqsat.language.terms.formulas import reader
from eqsat.system.deadline import check

#: Operators that have a counterpart for strings.
_FOR_STRINGS = ("Identity", "Shape", "Size", "Constant")
#: From this version of the format on an initializer that is also an input is a default the caller may override.
_OVERRIDABLE_IR = 4
#: Nodes that all loops of a graph together may become: a few within each other would become any number.
_MOST_UNROLLED = 1024


def load(source: str | Path | ModelProto) -> Graph:
    """The graph of an ONNX model, typed and folded; ImportModelError for one that cannot be read.

    Opsets 7 to the newest the onnx package knows. A node without a counterpart becomes opaque.
    External data are read when needed, and only from the model's own folder.
    """
    return load_source(read(source))


def load_source(source: Source) -> Graph:
    """The graph of a model whose large tensors are held beside it; ImportModelError as in `load`."""
    return _Import(source).graph()


def load_body(body: GraphProto, scope: BodyScope, around: ModelProto, where: str) -> Graph:
    """The graph of a body of If, Loop or Scan, in the scope of the graph around it; ImportModelError as in `load`.

    Its inputs are the body's own, then the values that it captures but those that are constants.
    """
    return _Import(Source(as_model(body, around), where), scope).graph()


class _Import:
    def __init__(self, source: Source, scope: BodyScope | None = None) -> None:
        self.source = source
        self.model = functions.inlined(source.model, source.where)
        self.where = source.where
        self.opset = opsets_of(source.model).get("", 0)
        self.opsets = opsets_of(self.model)
        self.scope = scope
        self.folder = Folder(fresh_beside(()) if scope is None else scope.fresh)
        self.budget = Budget.of(self.model.graph) if scope is None else scope.budget
        self.warnings: list[str] = []
        self.records: list[FusedRecord] = []
        self.settled: list[SettledControl] = []
        self.room = _MOST_UNROLLED
        self.sparse: dict[str, tuple[Constant, bytes]] = {}
        self._fresh_name = Names().numbered
        self._read: set[str] = set()
        shown = ([d.dim_param for d in v.type.tensor_type.shape.dim] for v in self.model.graph.input)
        self._dim = reader(shown) if scope is None else scope.reader()

    def graph(self) -> Graph:
        """The whole translation."""
        proto = self.model.graph
        structure.check_names(proto, self.where)
        structure.check_arity(proto, self.where)
        reads = [structure.operands(n) for n in proto.node]
        self._read = {value for operands in reads for value in operands} | {value.name for value in proto.output}
        structure.check(proto, reads, self.where)
        order = structure.order(proto, reads, self.where)
        if order != sorted(order):
            self.warnings.append("the nodes of the model are not in order; they were sorted")
        for node in proto.node:
            if node.attribute:
                load_external(tensors_within(node), f"{self.where}: {node.name or node.op_type}", self.source.external)
        self._fresh_name = Names(names_in(self.model)).numbered
        constants = self._constants()
        inputs = self._inputs(constants)
        stated = {v.name: v for v in (*proto.value_info, *proto.output)}
        for i in order:
            check(0)  # bodies of nodes are read anew while a call goes on
            self._node(i, proto.node[i])
            for name in proto.node[i].output:
                if name in stated:
                    self._declare(name, stated[name].type)
        defaults = {name: constants[name] for name in inputs if name in constants}
        if defaults:
            self.warnings.append(
                f"{len(defaults)} initializers are inputs too, which a caller may override, so they are not constants"
            )
        return Graph(
            name=proto.name or "graph",
            inputs=tuple(inputs),
            outputs={o.name: self.folder.resolve(o.name) for o in proto.output},
            nodes=tuple(self.folder.nodes),
            constants=self.folder.constants,
            types=self.folder.types,
            origin=self._origin(defaults),
        ).without_dead()

    def _constants(self) -> dict[str, Constant]:
        constants: dict[str, Constant] = {}
        for i, tensor in enumerate(self.model.graph.initializer):
            place = f"{self.where}: initializer {tensor.name!r}"
            constants[tensor.name] = constant_of(tensor, place, self.source.external, self.source.raw.pop(i, None))
        for sparse in self.model.graph.sparse_initializer:
            name = sparse.values.name
            constant = dense_of(sparse, f"{self.where}: sparse initializer {name!r}", self.source.external)
            constants[name] = constant
            self.sparse[name] = (constant, sparse.SerializeToString(deterministic=True))
        if self.scope is not None:
            constants |= self.scope.constants
        return constants

    def _inputs(self, constants: dict[str, Constant]) -> list[str]:
        """Add inputs and constants; return the names of the inputs."""
        overridable = self.model.ir_version >= _OVERRIDABLE_IR
        inputs = []
        for value in self.model.graph.input:
            if value.name in constants and (not overridable or self.scope is not None):
                continue
            inputs.append(value.name)
            if self.scope is not None:
                self.folder.add_input(value.name, self.scope.types[value.name])
                continue
            if value.name not in constants:
                structure.check_typed(value, self.where)
            self.folder.add_input(value.name, value_type(value.type, self.folder.fresh, self._dim))
        for name, constant in constants.items():
            if not self.folder.is_defined(name):
                self.folder.add_constant(name, constant, merge=name not in self.sparse)
        for name, dims in self.scope.dims.items() if self.scope is not None else ():
            self.folder.know(name, dims)
        return inputs

    def _node(self, index: int, node: NodeProto) -> None:
        self._check_domain(index, node)
        typed = self._control(node)
        body = self._in_its_place(index, node, typed)
        if body is not None:
            for name, constant in body.constants.items():
                self.folder.add_constant(name, constant)
            # The outputs of the node may be what is made within, so they count as read.
            self._read |= {value for inner in body.nodes for value in (*structure.operands(inner), *node.output)}
            for inner in body.nodes:
                self._node(index, inner)
            return
        try:
            reason = self._refused(node)
            if reason is not None:
                reason = self._by_definition(node, reason)
        except Unreadable as fault:
            reason = str(fault)
        except (ShapeError, ImportModelError) as fault:
            if not may_hold_nothing(self.folder, node.input):
                place = self._place(index, node)
                raise ImportModelError(fault.what, where=place, expected=fault.expected, remedy=fault.remedy) from fault
            reason = f"{fault.what}, which ONNX Runtime lets pass where tensors are empty"
        except (KeyError, ValueError, TypeError, IndexError, AttributeError, ZeroDivisionError, OverflowError) as fault:
            raise ImportModelError(
                f"the attributes or inputs of {node.op_type} are malformed: {fault}",
                where=self._place(index, node),
                expected=f"a valid {node.op_type} of opset {self.opset}",
                remedy="check the model with onnx.checker",
            ) from fault
        if reason is not None:
            self._keep_opaque(node, reason_to_stay(node, typed) or reason, typed)

    def _place(self, index: int, node: NodeProto) -> str:
        return f"{self.where}: {structure.describe(index, node)}"

    def _refused(self, node: NodeProto) -> str | None:
        """Translate a node by the tables; return why that cannot be done, None where it can."""
        reason = self._reason(node)
        if reason is not None:
            return reason
        try:
            self._translate(node)
        except Unreadable:
            raise
        except Unsupported as fault:
            return str(fault)
        return self._unread(node)

    def _by_definition(self, node: NodeProto, reason: str) -> str | None:
        """Read a node by ONNX's definition of its operator; return why it stays opaque, None where it does not."""
        outputs = {i: name for i, name in enumerate(node.output) if name}
        if any(self.folder.is_defined(name) for name in outputs.values()):
            return reason

        def read(body: GraphProto, scope: BodyScope, around: ModelProto) -> Graph:
            around.ir_version = self.model.ir_version
            return load_body(body, scope, around, f"{self.where}: {node.name or node.op_type}")

        try:
            defined = definition(node, self.opsets, self.folder, self.budget, read, list(outputs))
        except Unsupported as fault:
            return str(fault)
        if defined is None:
            return reason
        count = len(self.folder.nodes)
        defined.add_to(self.folder, dict(zip(defined.graph.outputs, outputs.values(), strict=True)), self._fresh_name)
        self._record(node, count, frozenset(self.folder.resolve(v) for v in node.input if v and self._is_known(v)))
        return None

    def _is_known(self, value: str) -> bool:
        """True if elements of a value are known, on which the reading of a node may rest."""
        return self.folder.resolve(value) in self.folder.constants or self.folder.dims(value) is not None

    def _translate(self, node: NodeProto) -> None:
        """Add the operators that a node is; keep a record of one that another domain calls something of its own."""
        table, count = importers_of(node.domain), len(self.folder.nodes)
        call = Call(node, self.opset, self.folder, self._fresh_name, self._read)
        table[node.op_type](call)
        is_own = node.domain == COMPREHENSIONS or (importers_of("") is table and node.op_type not in FUSED)
        if self._unread(node) or is_own:
            return
        self._record(node, count, frozenset(call.looked_at))

    def _record(self, node: NodeProto, count: int, looked_at: frozenset[str]) -> None:
        """Keep a record of a node that was read as the nodes from a place on, where it is not folded away."""
        nodes = self.folder.nodes[count:]
        if not nodes:
            return
        inputs = [self.folder.resolve(v) if v else None for v in node.input]
        outputs = [self.folder.resolve(o) if o else "" for o in node.output]
        known = self.folder.types, self.folder.constants
        self.records.append(record(node, inputs, outputs, nodes, *known, looked_at))

    def _control(self, node: NodeProto) -> Control | None:
        """The facts known of a node that holds bodies, where it is none of those whose condition is known."""
        attributes = node.attribute
        if not attributes or not any(a.HasField("g") for a in attributes) or self._condition(node) is not None:
            return None

        def read(body: GraphProto, scope: BodyScope) -> Graph:
            return load_body(body, scope, self.model, f"{self.where}: {node.name or node.op_type}")

        return control(node, self.opset, self.folder, self.budget, read)

    def _in_its_place(self, index: int, node: NodeProto, found: Control | None) -> Inlined | None:
        """The nodes in the place of one that holds bodies, where the runs are known."""
        if node.op_type != "If" and found is None:
            return None
        place = self._place(index, node)
        called = f"{node.op_type} {node.name or (node.output or [''])[0]!r}"
        condition = self._condition(node)
        if condition is not None:
            branch = taken_branch(node, condition, self._fresh_name, place)
            if branch is not None:
                text = f"{called}: its condition is always {'true' if condition else 'false'}"
                self.settled.append(SettledControl(text, 1))
            return branch
        if found is None or not isinstance(found.trips, int):
            return None
        body = unrolled(node, found.trips, self.opset, self._fresh_name, place)
        if body is None or len(body.nodes) > self.room:
            return None
        self.room -= len(body.nodes)
        self.settled.append(SettledControl(f"{called}: its {found.trips} runs one after the other", found.trips))
        return body

    def _condition(self, node: NodeProto) -> bool | None:
        """The condition of an If, where it is known."""
        if node.op_type != "If" or node.domain not in ("", "ai.onnx") or not node.input:
            return None
        known = self.folder.dims(node.input[0])
        if known is None or known.size != 1 or isinstance(known.ravel()[0], Sym):
            return None
        return bool(known.ravel()[0])

    def _reason(self, node: NodeProto) -> str | None:
        """Why a node cannot be translated, as far as can be said before trying."""
        if node.op_type not in importers_of(node.domain):
            return reason_for(node.domain, node.op_type)
        if node.op_type in BEYOND_TENSORS:
            return None
        for value in node.input:
            type = self.folder.type(value) if value else None
            if type is not None and not isinstance(type, TensorType):
                return f"the type of {value!r} is {type}"
            if type is not None and type.dtype is DType.STRING and node.op_type not in _FOR_STRINGS:
                return "operates on strings"
        return None

    def _unread(self, node: NodeProto) -> str | None:
        for name in node.output:
            if name and not self.folder.is_defined(name):
                return f"output {name!r} has no counterpart"
        return None

    def _keep_opaque(self, node: NodeProto, reason: str, found: Control | None) -> None:
        outer = captured(node)
        attrs = Attrs(
            op_type=node.op_type,
            domain=node.domain,
            reason=reason,
            proto=node.SerializeToString(deterministic=True),
            captures=len(outer),
        )
        inputs = tuple(v or None for v in (*node.input, *outer))
        types = self._opaque_types(node)
        if found is not None:
            types = dict(zip(node.output, found.results, strict=False))
        self.folder.add(Node(OPAQUE, inputs, tuple(node.output), attrs, node.name))
        for name, type in (types or opaque.branch_types(node, self.folder.fresh)).items():
            if name in node.output and name and type is not UNKNOWN:
                self.folder.declare(name, type)

    def _opaque_types(self, node: NodeProto) -> Mapping[str, ValueType]:
        """The types of a node's outputs, by our own tables for domains that onnx knows little of, else by onnx."""
        call = Call(node, self.opset, self.folder, self._fresh_name, self._read)
        version = self.opsets.get(node.domain, self.opset)
        return ml_types(call) or opaque.result_types(node, self.model, version, self.folder) or own_types(call)

    def _check_domain(self, index: int, node: NodeProto) -> None:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if domain not in self.opsets:
            raise ImportModelError(
                f"the model uses {node.op_type} of domain {domain!r} and imports no opset of that domain",
                where=self._place(index, node),
                expected="an opset_import for every domain",
                remedy="export the model again",
            )

    def _declare(self, name: str, proto: TypeProto) -> None:
        """Join the inferred type with the one that the model states of a value; an element type must agree."""
        stated = value_type(proto, self.folder.fresh, self._dim)
        known = self.folder.type(name)
        if self.scope is not None and self.scope.repeated and isinstance(stated, TensorType):
            stated = stated.with_shape(None)
        if isinstance(stated, TensorType) and isinstance(known, TensorType) and stated.dtype is not known.dtype:
            raise ImportModelError(
                f"{name!r} is declared {stated.dtype.value} and is {known.dtype.value}",
                where=self.where,
                expected="one element type a value",
                remedy="export the model again",
            )
        if stated is not UNKNOWN:
            self.folder.declare(name, stated)

    def _origin(self, defaults: dict[str, Constant]) -> OnnxOrigin:
        graph = self.model.graph
        rest = ModelProto()
        rest.CopyFrom(self.model)
        for field in _TRANSLATED:
            rest.graph.ClearField(field)
        path = self.source.path
        files = tuple(self.source.external.files.values())
        # Types that a body states may hold of one run alone; its graph has the inferred ones.
        stated = graph if self.scope is None else GraphProto()
        return OnnxOrigin(
            model=rest.SerializeToString(deterministic=True),
            opset=self.opset,
            ir_version=self.model.ir_version,
            inputs={v.name: v.SerializeToString(deterministic=True) for v in stated.input},
            outputs={v.name: v.SerializeToString(deterministic=True) for v in stated.output},
            values={v.name: v.SerializeToString(deterministic=True) for v in stated.value_info},
            defaults=defaults,
            sparse=self.sparse,
            listed=tuple(v.name for v in graph.output),
            path=path,
            external=bool(files),
            files=(*((path.resolve(),) if path else ()), *files),
            warnings=tuple(self.warnings),
            records=tuple(self.records),
            settled=tuple(self.settled),
            nodes=sum(n.op_type != "Constant" for n in self.source.model.graph.node),
        )


_TRANSLATED = ("node", "initializer", "sparse_initializer", "input", "output", "value_info")
