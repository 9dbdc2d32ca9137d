"""The arena of random programs: checked, against a simulation of what lies in memory, and against lower bounds."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.errors import BackendError
from eqsat.language.terms import DType, Node
from eqsat.runtime.kernels.view import BUFFER_ALIGNMENT, View
from eqsat.runtime.programs.arena import arrange, check, lifetimes
from eqsat.runtime.programs.launches import Buffer, Fallback, Launch
from eqsat.runtime.programs.program import KernelProgram


def launch(reads, writes):
    return Launch(Fallback(Node("relu", ("x",), ("y",))), tuple(reads), tuple(writes), (), "relu")


@st.composite
def programs(draw):
    """Launches that each write one new value and read some of the earlier ones; some values are outputs."""
    count = draw(st.integers(1, 14))
    buffers = {"x": Buffer("x", 64, "input")}
    whole = {"x": View.of("x", DType.UINT8, (64,))}
    launches = []
    for i in range(count):
        size = draw(st.sampled_from((0, 1, 100, 256, 1000, 3000)))
        name = f"v{i}"
        reads = draw(st.lists(st.sampled_from(sorted(whole)), min_size=1, max_size=3, unique=True))
        buffers[name] = Buffer(name, size, draw(st.sampled_from(("value", "value", "value", "output"))))
        launches.append(launch([whole[n] for n in reads], [View.of(name, DType.UINT8, (size,))]))
        whole[name] = View.of(name, DType.UINT8, (size,))
    return KernelProgram("p", buffers, tuple(launches), {"x": whole["x"]}, {"y": whole[f"v{count - 1}"]})


def memory_holds(program, arrangement):
    """Whether every launch finds in memory what was last written to each value it reads: by going through them."""
    arena = np.full(arrangement.arena, -1)
    for index, step in enumerate(program.launches):
        for view in step.reads:
            if program.buffers[view.buffer].role == "value":
                begin = arrangement.offsets[view.buffer]
                written = max(i for i, s in enumerate(program.launches[:index]) if s.writes[0].buffer == view.buffer)
                if not (arena[begin : begin + view.nbytes] == written).all():
                    return False
        for view in step.writes:
            if program.buffers[view.buffer].role == "value":
                begin = arrangement.offsets[view.buffer]
                arena[begin : begin + view.nbytes] = index
                for other in step.reads:
                    at = arrangement.offsets.get(other.buffer)
                    if (
                        at is not None
                        and view.nbytes
                        and other.nbytes
                        and not (begin + view.nbytes <= at or at + other.nbytes <= begin)
                    ):
                        return False
    return True


@given(programs())
def test_no_value_is_overwritten_while_it_is_needed(program):
    arrangement = arrange(program)
    check(program, arrangement)
    assert memory_holds(program, arrangement)
    assert arrangement.bound <= arrangement.arena <= arrangement.sum
    assert all(offset % BUFFER_ALIGNMENT == 0 for offset in arrangement.offsets.values())
    text = str(arrangement)
    assert "in one arena" in text


@given(programs(), st.data())
def test_the_checker_finds_what_the_simulation_finds(program, data):
    """Values moved to random places: whatever goes wrong in memory, the checker says so."""
    arrangement = arrange(program)
    moved = {
        name: data.draw(st.integers(0, max(arrangement.arena - program.buffers[name].nbytes, 0)), label=name)
        for name in arrangement.offsets
    }
    other = replace(arrangement, offsets=moved)
    if not memory_holds(program, other):
        with pytest.raises(BackendError, match=r"overlap in memory at launch \d"):
            check(program, other)


def chain(sizes):
    """Each value is made of the one before."""
    buffers = {"x": Buffer("x", 4, "input")} | {f"v{i}": Buffer(f"v{i}", n, "value") for i, n in enumerate(sizes)}
    views = [View.of("x", DType.UINT8, (4,)), *(View.of(f"v{i}", DType.UINT8, (n,)) for i, n in enumerate(sizes))]
    steps = tuple(launch([a], [b]) for a, b in itertools.pairwise(views))
    return KernelProgram("chain", buffers, steps, {"x": views[0]}, {})


def test_a_chain_takes_as_much_as_its_largest_pair():
    arrangement = arrange(chain([1024, 2048, 512, 4096, 256]))
    assert arrangement.arena == arrangement.bound == 512 + 4096
    assert arrangement.sum == 1024 + 2048 + 512 + 4096 + 256


def test_a_value_that_nothing_writes_is_refused():
    program = chain([16, 16])
    with pytest.raises(BackendError, match="reads 'v0', which nothing before it writes"):
        lifetimes(replace(program, launches=program.launches[1:]))


def test_a_view_beyond_its_buffer_is_refused():
    program = chain([16, 16])
    arrangement = arrange(program)
    beyond = View.of("v0", DType.UINT8, (17,))
    wrong = replace(program, launches=(launch([], [beyond]), *program.launches[1:]))
    with pytest.raises(BackendError, match="reaches bytes 0 to 17 of 'v0'"):
        check(wrong, arrangement)


def test_a_value_beyond_the_arena_is_refused():
    program = chain([256, 256])
    arrangement = replace(arrange(program), arena=300)
    with pytest.raises(BackendError, match="beyond the arena at launch 1"):
        check(program, arrangement)


def test_a_concatenation_lives_from_its_first_part():
    whole = View.of("v1", DType.UINT8, (512,))
    buffers = {"x": Buffer("x", 4, "input")} | {f"v{i}": Buffer(f"v{i}", 512, "value") for i in range(3)}
    source = View.of("x", DType.UINT8, (4,))
    other = View.of("v0", DType.UINT8, (512,))
    steps = (
        launch([source], [whole.sliced(0, 0, 256)]),
        launch([source], [other]),
        launch([other], [whole.sliced(0, 256, 256)]),
        launch([whole], [View.of("v2", DType.UINT8, (512,))]),
    )
    program = KernelProgram("c", buffers, steps, {"x": source}, {})
    assert lifetimes(program)["v1"].first == 0
    check(program, arrange(program))
