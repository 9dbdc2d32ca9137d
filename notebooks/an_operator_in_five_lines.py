# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # An operator in five lines
# An operator that no library has is one equation between elements. Its type rule, its laws, its
# kernel and its place in a choice follow. It takes a C compiler.

# %%
import numpy as np

import eqsat
from eqsat.language.ops import spec
from eqsat.rewrites.rules.derive import derived_laws

rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


# %% [markdown]
# ## Write it
# A locally connected layer: a convolution that has weights of its own at each place. ONNX has no
# such operator. No extent is written: ranges follow from the subscripts.

# %%
layers = eqsat.comprehension("""
def local(float(B,N) x, float(M,K) w) -> (y) {
  y(b,m) +=! x(b,m + k) * w(m,k)
}
""")
x, w = normal(32, 1032), normal(1024, 9)
y = layers.local(x, w)
windows = np.lib.stride_tricks.sliding_window_view(x, 9, axis=1)
assert np.allclose(y, (windows * w).sum(axis=2), atol=1e-4)
y.shape

# %% [markdown]
# A subscript that passes its tensor is an error, before anything is read.

# %%
try:
    layers.local(x, normal(1025, 9))
except eqsat.EqsatError as error:
    print(error)
    refused = error
assert "x" in str(refused)

# %% [markdown]
# ## See its laws
# Nobody declared that it is linear. It is read off the text, in which each term has one factor of
# each operand, and laws follow: two such layers of one input are one, of the sum of their weights.

# %%
g = eqsat.Graph("ensemble")
given = g.input("x", (32, 1032))
weights = [normal(1024, 9) for _ in range(2)]
first, second = (layers.local(given, g.constant(one)) for one in weights)
g.output("y", eqsat.tanh(first + second))
graph = g.build()
laws = derived_laws([spec(graph.nodes[0].op)])
for law in laws:
    print(str(law)[:78])
assert any(law.name == "local-over-add-right" for law in laws)

# %% [markdown]
# ## See its kernel
# As a person would write it: one loop for each index.

# %%
print(eqsat.emit(layers.local, x, w).partition("{")[2][:600])

# %% [markdown]
# ## Tune it
# Tiles in registers, vectors, copies and threads are options. A genetic search times them, and what
# is fastest is kept for this processor.

# %%
tuned = eqsat.autotune(layers.local, x, w, seconds=5, progress=False)
plain, fast = eqsat.kernel(layers.local, "naive"), eqsat.kernel(layers.local)
assert np.allclose(plain(x, w), fast(x, w), atol=1e-4)
print(f"{len(tuned.history)} candidates, the fastest takes {tuned.seconds * 1e6:.0f} µs")
assert len(tuned.history) > 1

# %% [markdown]
# ## See it chosen
# In the e-graph, both layers are equal to one of summed weights, which are constants. The device
# `c-cpu` measures the kernels, the integer program chooses, and both versions are timed.

# %%
result = eqsat.optimize(graph, device="c-cpu", time_limit=30)
print(result)
assert [node.op for node in result.graph.nodes] == ["local", "tanh"]
assert result.report.cost_after < result.report.cost_before

# %% [markdown]
# The result is one library, which a run calls once, and computes what the graph does. (`result.compile()` leaves kernels to
# ONNX Runtime where it was measured to compute them faster; here all are C.)

# %%
from eqsat.runtime.backend import select  # noqa: E402

program = select("c").compile(result.graph, regions=())
outputs = program(x=x)
wanted = np.tanh(sum(layers.local(x, one) for one in weights))
error = float(np.abs(outputs["y"] - wanted).max())
(machine,) = program.machines.values()
print(f"{machine.calls} call, {len(machine.program.launches)} kernels, error {error:.1e}")
assert machine.calls == 1
assert error < 1e-4
