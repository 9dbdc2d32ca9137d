"""CUDA as far as programs use it, on host memory: to show in which order they ask for things, not how fast.

Work that is put on a stream is done as late as it may be: when something waits for it. Captured work is done in an
order drawn at random among those that streams and events allow. What lacks an event is therefore seen in the results.
"""

import contextlib
import ctypes
import itertools
import random
import time
import types
import weakref
from dataclasses import replace

import numpy as np

from eqsat.runtime.cuda.libraries.emulated import compute
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.programs.arrays import strided
from eqsat.testing.cuda.emulator import emulate


class CudaError(RuntimeError):
    def __init__(self, text, status=700):
        super().__init__(text)
        self.status = status


class Work:
    """Something to do once its predecessors are done."""

    def __init__(self, do, before):
        self.do, self.before, self.done, self.ended = do, before, False, 0.0

    def finish(self):
        left = [self]
        while left:
            one = left[-1]
            waiting = [b for b in one.before if not b.done]
            if waiting:
                left += waiting
                continue
            left.pop()
            if not one.done:
                one.do()
                one.done, one.ended = True, time.perf_counter()
                one.do, one.before = None, set()  # what it held may be given back


class Stream:
    #: Names of the stand-in's own, for itself and for tests: CuPy's streams have none of them.
    OWN = frozenset({"OWN", "cuda", "last", "awaited", "capture", "push"})

    def __init__(self, cuda):
        self.cuda, self.ptr = cuda, next(cuda.numbers)
        self.last, self.awaited, self.capture = None, set(), None
        cuda.streams[self.ptr] = self

    def push(self, do):
        before = {w for w in (self.last, *self.awaited) if w is not None}
        self.last, self.awaited = Work(do, before), set()
        if self.capture is not None:
            self.capture.append(self.last)

    def wait_event(self, event):
        if event.work is not None:
            self.awaited.add(event.work)
        if event.capture is not None and self.capture is None:
            self.capture, self.last = event.capture, None

    def synchronize(self):
        if self.capture is not None:
            raise CudaError("a stream that is captured is waited for", 900)
        for work in (self.last, *self.awaited):
            if work is not None:
                work.finish()

    def begin_capture(self):
        self.synchronize()
        self.capture, self.last = [], None

    def end_capture(self):
        works = self.capture
        joined, left = set(), [self.last, *self.awaited]
        while left:
            one = left.pop()
            if one is not None and one not in joined:
                joined.add(one)
                left += one.before
        for stream in self.cuda.streams.values():
            if stream.capture is works:
                stream.capture, stream.last, stream.awaited = None, None, set()
        if set(works) - joined:
            raise CudaError("captured work was not joined", 904)
        return Graph(self.cuda, works)

    def __enter__(self):
        self.cuda.current.append(self)

    def __exit__(self, *_):
        self.cuda.current.pop()


class Graph:
    OWN = frozenset({"OWN", "cuda", "works"})

    def __init__(self, cuda, works):
        self.cuda, self.works = cuda, works
        cuda.graphs += 1

    def upload(self, stream):
        assert isinstance(stream, Stream)

    def launch(self, stream):
        def replay():
            done, left = set(), list(self.works)
            while left:
                ready = [w for w in left if w.before <= done]
                one = self.cuda.rng.choice(ready)
                one.do()
                done.add(one)
                left.remove(one)

        self.cuda.graphs_launched += 1
        self.cuda.replayed += len(self.works)
        stream.push(replay)


class Event:
    OWN = frozenset({"OWN", "work", "capture"})

    def __init__(self, block=False, disable_timing=False):
        self.work = self.capture = None

    def record(self, stream):
        stream.push(lambda: None)
        self.work, self.capture = stream.last, stream.capture

    def synchronize(self):
        self.work.finish()


class Array:
    """What CuPy's arrays are to programs: of NumPy's protocols they have none."""

    OWN = frozenset({"OWN", "cuda", "held", "memory"})
    __array_ufunc__ = None

    def __init__(self, cuda, held, memory):
        self.cuda, self.held, self.memory = cuda, held, memory
        self.shape, self.dtype, self.strides, self.ndim = held.shape, held.dtype, held.strides, held.ndim
        self.size = held.size

    def __array__(self, *_, **__):
        raise TypeError("arrays of a GPU are not read by NumPy")

    @property
    def __cuda_array_interface__(self):
        return self.held.__array_interface__

    def __dlpack_device__(self):
        return 2, self.cuda.number

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.held.ctypes.data)

    def copy(self):
        return self.cuda.cupy.array(self)

    def __setitem__(self, key, value):
        assert key is Ellipsis
        given = value.held if isinstance(value, Array) else value
        self.cuda.stream().push(lambda: self.held.__setitem__(..., given))


class Memory:
    OWN = frozenset({"OWN", "cuda", "held"})

    def __init__(self, cuda, size):
        if any(s.capture is not None for s in cuda.streams.values()):
            raise CudaError("memory is taken while a stream is captured", 900)
        if cuda.taken + size > cuda.limit:
            raise CudaError("out of memory", 2)
        self.cuda, self.size = cuda, size
        self.held = np.full(size + 256, 0xFF, np.uint8)
        self.ptr = self.held.ctypes.data + -self.held.ctypes.data % 256
        cuda.taken += size
        cuda.memories.add(self)

    def __del__(self):
        if hasattr(self, "ptr"):
            self.cuda.settle()  # as cudaFree does
            self.cuda.taken -= self.size


class StandIn:
    """The parts of CuPy that machines use; `limit` is the memory there is, `taken` what is taken, in bytes.

    `launched` counts kernels that are launched, `graphs_launched` graphs, `replayed` the works of a graph each time.
    """

    def __init__(self, seed=0, limit=1 << 30, number=0):
        self.rng, self.limit, self.number = random.Random(seed), limit, number
        self.numbers, self.streams, self.taken, self.graphs = itertools.count(1), {}, 0, 0
        self.launched = self.replayed = self.graphs_launched = 0
        self.functions, self.memories = {}, weakref.WeakSet()
        self.pool = []  # memory that is given back is taken again by later work of its stream alone
        self.null = Stream(self)
        self.current = [self.null]
        runtime = types.SimpleNamespace(
            CUDARuntimeError=CudaError,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memset=lambda to, value, size: self.null.push(lambda: ctypes.memset(to, value, size)),
            memcpy=lambda to, origin, size, kind: self._later(to, origin, size),
            memcpyAsync=self._copy,
            deviceSynchronize=self.settle,
            memGetInfo=lambda: (self.limit - self.taken, self.limit),
        )
        driver = types.SimpleNamespace(CUDADriverError=CudaError, launchKernel=self._launch)
        cuda = types.SimpleNamespace(
            runtime=runtime,
            driver=driver,
            Memory=lambda size: Memory(self, size),
            MemoryPointer=lambda memory, offset: (memory, offset),
            Stream=lambda non_blocking: Stream(self),
            Event=Event,
            get_current_stream=self.stream,
            get_elapsed_time=lambda one, two: (two.work.ended - one.work.ended) * 1e3,
            alloc_pinned_memory=lambda size: bytearray(size),
            Device=lambda number: contextlib.nullcontext(),
        )
        self.cupy = types.SimpleNamespace(
            ndarray=_InstanceOf(self._over),
            cuda=cuda,
            array=self._array,
            asarray=lambda given: given if isinstance(given, Array) else self._array(given),
            asnumpy=self._to_host,
            empty=lambda shape, dtype: self._array(np.empty(shape, dtype)),
            zeros=lambda shape, dtype: self._array(np.zeros(shape, dtype)),
            ascontiguousarray=lambda given: given if given.held.flags.c_contiguous else self._array(given),
            get_default_memory_pool=lambda: types.SimpleNamespace(free_all_blocks=lambda: None),
        )
        for name in ("add", "subtract", "multiply", "negative", "matmul", "maximum", "minimum", "where"):
            setattr(self.cupy, name, getattr(np, name))
        for name in ("equal", "less", "less_equal", "exp", "argsort", "sum", "max"):
            setattr(self.cupy, name, getattr(np, name))

    def stream(self):
        return self.current[-1]

    def _over(self, shape, dtype, pointer, strides):
        memory, offset = pointer
        held = (ctypes.c_uint8 * memory.size).from_address(memory.ptr)
        return Array(self, np.ndarray(shape, dtype, held, offset, strides), memory)

    def _array(self, given, order="C"):
        held = given.held if isinstance(given, Array) else np.asarray(given)
        fresh = Array(self, np.full(held.shape, 77, held.dtype), None)
        self.pool.append(fresh.held)
        self.stream().push(lambda: fresh.held.__setitem__(..., held))
        return fresh

    def _to_host(self, array):
        self.stream().synchronize()
        return np.array(array.held if isinstance(array, Array) else array)

    def settle(self):
        for stream in list(self.streams.values()):
            if stream.capture is None:
                stream.synchronize()

    def _later(self, to, origin, size):
        """From the host, what is read is read at once; when it arrives is another matter."""
        held = ctypes.string_at(origin, size)
        self.null.push(lambda: ctypes.memmove(to, held, size))

    def _copy(self, to, origin, size, kind, stream):
        self.streams[stream].push(lambda: ctypes.memmove(to, origin, size))

    def _launch(self, function, *rest):
        extents, (stream, arguments, extra) = rest[:7], rest[7:]
        source = self.functions[function]
        assert extents == (*source.grid, *source.block, source.shared) and extra == 0
        pointers = ctypes.cast(arguments, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))
        addresses = [pointers[i][0] or 0 for i in range(len(source.arguments))]
        ints = range(len(addresses), len(addresses) + len(source.numbers))
        numbers = tuple(ctypes.cast(pointers[i], ctypes.POINTER(ctypes.c_int))[0] for i in ints)
        self.launched += 1
        if source.entry != "hold":
            self.streams[stream].push(lambda: emulate(replace(source, numbers=numbers), addresses))


class _InstanceOf:
    """CuPy's ndarray: what makes arrays over memory, and what they are instances of."""

    def __init__(self, make):
        self.make = make

    def __call__(self, *arguments):
        return self.make(*arguments)

    def __instancecheck__(self, one):
        return isinstance(one, Array)


class Toolkit:
    """What programs take for their GPU."""

    def __init__(self, cuda, libraries=("cublaslt", "cudnn")):
        self.cuda, self.cupy, self.number = cuda, cuda.cupy, cuda.number
        self.runtime, self.driver = self.cupy.cuda.runtime, self.cupy.cuda.driver
        self.weights = weakref.WeakValueDictionary()
        self.special = types.SimpleNamespace(erf=None, expit=None)
        self.libraries = {name: Library(cuda, name) for name in libraries}
        self.missing = {name: f"{name} is not installed" for name in ("cublaslt", "cudnn") if name not in libraries}

    def device(self):
        return contextlib.nullcontext()

    def adopt(self, array):
        return array

    def prepare(self, sources):
        assert all(isinstance(source, KernelSource) for source in sources)

    def function(self, source):
        number = len(self.cuda.functions) + 1
        self.cuda.functions[number] = source
        return number


class ForeignError(Exception):
    """An error of a library's bindings, which is none of eqsat's."""


class Library:
    """A library whose kernels compute what the real one would; it has no plan by the names in `refuses`.

    `faults` has pairs of what is done (plans, prepare, launch, capture) and the plan that it is done with: there an
    error of the library's is raised.
    """

    version = "1"

    def __init__(self, cuda, name):
        self.cuda, self.name, self.refuses, self.open, self.faults = cuda, name, set(), 0, set()

    def fail(self, doing, plan):
        if (doing, plan) in self.faults:
            raise ForeignError(f"EXECUTION_FAILED at {doing} of {plan}\nand more")

    def plans(self, call, address):
        self.fail("plans", None)
        return tuple(f"{self.name} {self.version} plan{n}" for n in range(3))

    def prepare(self, call, address, plan=None):
        from eqsat.errors import BackendError

        self.fail("prepare", plan)
        if plan in self.refuses:
            raise BackendError(f"no plan {plan}")
        self.open += 1
        return types.SimpleNamespace(
            plan=plan, workspace=512, launch=lambda s, w: self._launch(call, address, plan, s, w), close=self._close
        )

    def _launch(self, call, address, plan, stream, workspace):
        assert workspace
        self.fail("launch" if self.cuda.streams[stream].capture is None else "capture", plan)
        self.cuda.streams[stream].push(lambda: compute(call, lambda view: at(address(view), view)))

    def _close(self):
        self.open -= 1

    def close(self):
        assert not self.open


def at(address, view):
    """The elements of a view whose first lies at an address."""
    low, high = view.extent
    size = view.dtype.itemsize
    first = address - view.offset * size + low
    held = np.frombuffer((ctypes.c_uint8 * (high - low)).from_address(first), np.uint8)
    return strided(held, replace(view, offset=view.offset - low // size))
