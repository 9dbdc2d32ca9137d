"""Text of the kernels of comprehensions, in C or in CUDA C++."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsat.errors import UsageError
from eqsat.runtime.c.kernel import c_text, computation_of
from eqsat.runtime.c.tuned import FunctionLike, fastest_options, function_of, opened_at, options_for, with_clusters
from eqsat.runtime.cuda.comprehension_kernels import cuda_kernels, free_cuda_kernels
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.options import MappingOptions


def emit(
    function: FunctionLike,
    /,
    *arguments: Any,
    target: str = "c",
    options: MappingOptions | GpuMapping | Mapping[str, Any] | str = "naive",
    free: str | Sequence[str] = (),
    **named: Any,
) -> str:
    """The text of a function's kernel for the shapes of arguments, in C or, for the target "cuda", in CUDA C++.

    Options are "naive", with one loop for each index, "default", values by name, or, in C, "fastest"; several kernels
    for a GPU follow in the order in which they are launched. Sizes that are `free` are arguments. UsageError for
    another target, for unknown options and for sizes that cannot stay free, BackendError where the function has no
    such text.

    >>> import numpy as np
    >>> print(emit("def double(float(N) x) -> (y) { y(i) = 2 * x(i) }", np.zeros(3, np.float32)))
    static int double_v(
        const float *restrict x,
        float *restrict y,
        unsigned char *restrict workspace) {
      int failed = 0;
      for (int i = 0; i < 3; ++i) {
        y[i] = 2.0f * x[i];
      }
      return failed;
    }
    <BLANKLINE>
    """
    if target not in ("c", "cuda"):
        raise UsageError(f"target = {target!r}", where="emit", expected="'c' or 'cuda'")
    found = function_of(function)
    concrete, tensors = found.bind(arguments, named)
    inferred = opened_at(found, concrete, free)
    computation = computation_of(found, inferred, [name for name in found.scope.updated if name in tensors])
    if isinstance(options, GpuMapping if target == "c" else MappingOptions):
        wanted = MappingOptions if target == "c" else GpuMapping
        raise UsageError(f"{type(options).__name__} for {target}", where="emit", expected=wanted.__name__)
    if isinstance(options, GpuMapping) or target == "cuda":
        assert not isinstance(options, MappingOptions)
        make = free_cuda_kernels if computation.sizes else cuda_kernels
        return "\n".join(kernel.text for kernel in make(computation, GpuMapping.of(with_clusters(found, options))))
    chosen = fastest_options(found, inferred) if options == "fastest" else options_for(found, options)
    return c_text(computation, chosen).code
