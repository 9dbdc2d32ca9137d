"""Every operator, form, region and composition in C, for a process whose compiler adds checks to the code.

As a script it runs the parts that are named, or all of them, and prints how many programs of each it ran. Each buffer
has memory of its own, at whose last byte it ends: within one block, a read beyond a buffer would find the next.
"""

import ctypes
import itertools
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import eqsat
from eqsat.language.comprehension.graphs.composition import composed
from eqsat.language.comprehension.graphs.nodes.node import stated_node
from eqsat.language.comprehension.graphs.operators import operator_of
from eqsat.language.comprehension.graphs.regions import RegionStep, region_function
from eqsat.language.graphs.builder import Builder
from eqsat.language.ops import OPS
from eqsat.language.terms import Graph
from eqsat.runtime.backend import select
from eqsat.runtime.c.program import machine
from eqsat.runtime.c.program.kernels import KernelChoice, default_choice
from eqsat.runtime.c.program.lowering import c_program
from eqsat.runtime.c.toolchain import toolchain
from eqsat.runtime.kernels.nests.groups.lowering import CORES
from eqsat.runtime.kernels.nests.options import MappingOptions
from tests.support.c_graphs import GRAPHS, HALF, OPTIONS, inputs_of, product, small_elements
from tests.support.c_programs import assert_same, computed, graph_of
from tests.support.region_graphs import FORMS

#: Operators whose kernels are compiled together, in one library.
TOGETHER = 16
#: The names of all operators that have operands to draw.
NAMES = sorted(n for n, one in OPS.items() if one.sample is not None and not one.random and one.is_shipped)
LAYERS = """
def dense(float(B,I) x, float(O,I) w, float(O) b) -> (y) {
  y(n,o) +=! x(n,i) * w(o,i)
  y(n,o) = fmax(y(n,o) + b(o), 0)
}
def rows(float(B,S) z) -> (p) {
  m(r) max=! z(r,s)
  e(r,s) = exp(z(r,s) - m(r))
  t(r) +=! e(r,s)
  p(r,s) = e(r,s) / t(r)
}
def smooth(float(B,N) x) -> (y) { y(b,i) = (x(b,i) + x(b,i+1)) / 2 }
"""
LIBC = ctypes.CDLL(None)
LIBC.posix_memalign.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


def apart(sizes):
    """Bytes of each size, in memory of its own that ends with them."""
    made = []
    for nbytes in sizes:
        place = ctypes.c_void_p()
        assert LIBC.posix_memalign(ctypes.byref(place), 64, nbytes) == 0
        made.append(np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(place.value)))
        made[-1][:] = 0xFF  # NaN in floats
    return made


def together(graphs):
    """Graphs apart from each other as one, and their inputs by its names."""
    nodes, types, constants, given, outputs = [], {}, {}, {}, {}
    for number, (graph, inputs) in enumerate(graphs):

        def own(value, number=number):
            return None if value is None else value and f"g{number}_{value}"

        nodes += [replace(n, inputs=tuple(map(own, n.inputs)), outputs=tuple(map(own, n.outputs))) for n in graph.nodes]
        types |= {own(value): type for value, type in graph.types.items()}
        constants |= {own(value): one for value, one in graph.constants.items()}
        given |= {own(value): array for value, array in inputs.items()}
        outputs |= {own(name): own(value) for name, value in graph.outputs.items()}
    return Graph("together", tuple(given), outputs, tuple(nodes), constants, types), given


def forms():
    """Products and convolutions by every form and option, and operators on small elements by vectors of each width."""
    runs = 0
    for make in GRAPHS.values():
        graph = make()
        inputs = inputs_of(graph)
        kernels = [launch.work for launch in c_program(graph).launches]
        for form, options in itertools.product(sorted({form for one in kernels for form in one.forms}), OPTIONS):

            def chosen(kernel, form=form, options=options):
                return KernelChoice(form, options) if form in kernel.forms else default_choice(kernel)

            assert_same(graph, computed(graph, inputs, chosen)[1], inputs, 3e-6)
            runs += 1
    graph, inputs = small_elements()
    for width in (16, 32, 64):

        def wide(kernel, width=width):
            return KernelChoice("direct", MappingOptions(vector_bytes=width))

        assert_same(graph, computed(graph, inputs, wide)[1], inputs, HALF)
        runs += 1
    return runs


def operators():
    """Every operator over random operands, four times, many in one library."""
    for first in range(0, len(NAMES), TOGETHER):
        drawn = [graph_of(name, 4) for name in NAMES[first : first + TOGETHER]]
        graph, inputs = together(drawn)
        program, made = computed(graph, inputs)
        assert [launch.label for launch in program.launches if launch.kind == "fallback"] == []
        assert_same(graph, made, inputs)
    assert set(CORES) <= set(NAMES)
    return len(NAMES)


def regions():
    """Regions of graphs as the functions that they become."""
    graphs = []
    for make in FORMS.values():
        graph = make()
        types = [(tuple(graph.type(v) for v in node.inputs), graph.type(node.outputs[0])) for node in graph.nodes]
        stated = [stated_node(node, *one) for node, one in zip(graph.nodes, types, strict=True)]
        steps = [RegionStep(n, *one, s) for n, one, s in zip(graph.nodes, types, stated, strict=True)]
        found = region_function(steps, list(graph.outputs.values()))
        g = Builder("region")
        shapes = {v: [d if isinstance(d, int) else 7 for d in graph.type(v).dims] for v in found.operands}
        g.output("y", g.apply(operator_of(found.function).name, *(g.input(v, shapes[v]) for v in found.operands)))
        graphs.append((built := g.build(), inputs_of(built)))
    graph, inputs = together(graphs)
    assert_same(graph, computed(graph, inputs)[1], inputs)
    return len(graphs)


def compositions():
    """Functions of a user's, by themselves and put together, for all sizes and for one."""
    layers = eqsat.comprehension(LAYERS)
    two = composed(layers.dense, 0, layers.dense)
    functions = [*layers.values(), two, composed(layers.rows, 0, two), composed(layers.smooth, 0, layers.rows)]
    shapes = {"dense": [(16, 12), (10, 12), (10,)], "rows": [(16, 10)], "smooth": [(5, 33)]}
    shapes |= {"dense_dense": [(16, 12), (10, 12), (10,), (6, 10), (6,)], "rows_smooth": [(5, 33)]}
    shapes["dense_dense_rows"] = shapes["dense_dense"]
    graphs = []
    for function in functions:
        g = Builder("composition")
        given = [g.input(f"x{place}", shape) for place, shape in enumerate(shapes[function.name])]
        g.output("y", g.apply(operator_of(function).name, *given))
        graphs.append((built := g.build(), inputs_of(built)))
    graph, inputs = together(graphs)
    assert_same(graph, computed(graph, inputs)[1], inputs)
    return len(graphs)


def threaded():
    """Programs whose loops threads share, products by BLAS for parts among them, and one with its own choices."""
    runs = 0
    for name in ("conv by channel", "conv 1x1", "matmul", "max pool of odd planes"):
        graph = GRAPHS[name]()
        inputs = inputs_of(graph)
        for library in (False, True):
            choice = KernelChoice("direct", MappingOptions(library=library, threads=3))
            assert_same(graph, computed(graph, inputs, lambda kernel, choice=choice: choice)[1], inputs, 3e-6)
            runs += 1
    graph = product(256, 64, 128)
    inputs = inputs_of(graph)
    assert_same(graph, select("c").compile(graph, threads=2).run(inputs), inputs, 3e-6)
    return runs + 1


def read_beyond():
    """A read of the element behind four, which is to be found."""
    (held,) = apart([16])
    return planted("float faulty(float *x) { return x[4]; }").faulty(ctypes.c_void_p(held.ctypes.data))


def shift_too_far():
    """A shift by more bits than there are, which is to be found."""
    return planted("int faulty(int by) { return 1 << by; }").faulty(40)


def planted(text):
    """A library of a text, by the compiler and the flags of programs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "planted.so"
        path.write_bytes(toolchain().compiled(text))
        return ctypes.CDLL(str(path))


PARTS = {one.__name__: one for one in (operators, regions, compositions, threaded, forms)}
FAULTS = {one.__name__: one for one in (read_beyond, shift_too_far)}

if __name__ == "__main__":
    machine.aligned_parts = apart
    print(json.dumps({name: {**PARTS, **FAULTS}[name]() for name in sys.argv[1:] or PARTS}))
