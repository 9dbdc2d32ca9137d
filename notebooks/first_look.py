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
# # A first look
#
# We optimise a small recurrent text classifier, read the report line by line, and check what came
# out: what changed, by which rules, whether it still computes the same, and how fast it runs.

# %%
# %matplotlib inline
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import eqsat

# %% [markdown]
# ## A model
#
# A *simple recurrent unit* reads one word a step. Each step multiplies its word by the same three
# weights; only the state `c` is handed on. Graphs can be built in Python, as here, or read from
# ONNX: `optimize` takes a path just as well.

# %%
rng = np.random.default_rng(0)
steps, width, classes = 8, 256, 5
g = eqsat.Graph("sru")


def weight(*shape):
    return g.constant((rng.standard_normal(shape) / np.sqrt(width)).astype(np.float32))


x = g.input("x", (steps, width))
candidate, forget, reset = weight(width, width), weight(width, width), weight(width, width)
forget_bias, reset_bias, c = weight(width), weight(width), weight(1, width)
states = []
for t in range(steps):
    word = x[t : t + 1]
    f = eqsat.sigmoid(word @ forget + forget_bias)
    r = eqsat.sigmoid(word @ reset + reset_bias)
    c = f * c + (1 - f) * (word @ candidate)
    states.append(r * eqsat.tanh(c) + (1 - r) * word)
pooled = eqsat.reduce_mean(eqsat.concat(states, axis=0), axes=(0,), keepdims=True)
g.output("logits", pooled @ weight(width, classes))
original = g.build()
original

# %% [markdown]
# ## Optimise it
#
# One call does all of it. `progress` is called while the search runs; we only keep the phases it
# goes through. Then we show the result, which is its report.

# %%
phases = []
result = eqsat.optimize(original, progress=lambda p: phases.append(p.phase))
print(" -> ".join(dict.fromkeys(phases)))
result

# %% [markdown]
# ## The report, line by line
#
# **read**: how many nodes the graph had. Every line ends with the seconds it took.
#
# **saturate**: the graph became an *e-graph*, which holds many graphs at once. An *e-node* is an
# operator; an *e-class* is a set of e-nodes that compute the same tensor. Rules added equal forms
# until nothing new came within a radius of the original. The report has this step by step:

# %%
report = result.report
growth = [(seconds, enodes, eclasses) for _, enodes, eclasses, seconds in report.growth]
seconds, enodes, eclasses = zip(*growth, strict=True)
figure = Figure(figsize=(6, 2.8), layout="constrained")
axes = figure.subplots()
axes.plot(seconds, enodes, "o-", label="e-nodes")
axes.plot(seconds, eclasses, "s-", label="e-classes")
axes.set(xlabel="seconds", ylabel="in the e-graph", ylim=(0, None))
axes.legend(frameon=False)
figure

# %% [markdown]
# E-nodes grow and e-classes hardly do: most of what rules add are other ways to compute tensors
# that are there already.

# %%
fired = sorted(report.rules_fired.items(), key=lambda item: -item[1])
for rule, times in fired[:6]:
    print(f"{times:5}  {rule}")
assert report.enodes > 4 * len(original.nodes)

# %% [markdown]
# **extract**: an integer program picked the cheapest graph in the e-graph. The *gap* says how
# much a better choice could save at most: at 0 % there is none. The cost is predicted, by a model
# of this device or by what was measured on it.

# %%
print(f"chosen {report.cost_after:.3g} s, no choice is below {report.lower_bound:.3g} s")
for other in report.baselines:
    print(f"{other.name:>13} found {other.cost:.3g} s")
assert report.cost_after < report.cost_before
assert report.gap < 0.01

# %% [markdown]
# **measure**: the original and the finalists ran in turn on ONNX Runtime. The original is kept
# unless the upper 95 % bound of new/old is below 1, so that a result is never slower by accident.

# %%
print(f"kept: {report.kept}, {report.kept_because}")
print(f"new/old is at most {report.measured_bound:.2f} (95 %), in {report.rounds} rounds")
assert report.measured_bound < 1

# %% [markdown]
# **certify**: the result was compared with the original, region by region, exactly modulo a prime
# where the operators allow it and in float64 elsewhere. This check does not know the rules, so a
# wrong rule does not pass it.

# %%
print(report.certificate.text)
assert report.certificate.kind != "none"
assert report.certificate.error < 1e-3

# %% [markdown]
# **The first table** lists changes: which operators became which, how many nodes fewer, what the
# cost model says that saves, what was measured, and the rules behind it. **The second table**
# lists what runs now. In numbers: many small products became a few large ones.

# %%
for op in ("matmul", "gemm", "sigmoid", "slice"):
    print(f"{op:8} {report.operators_before.get(op, 0):3} -> {report.operators_after.get(op, 0)}")
products = [
    sum(counts.get(op, 0) for op in ("matmul", "gemm"))
    for counts in (report.operators_before, report.operators_after)
]
assert products[1] < products[0] / 4

# %% [markdown]
# ## Why it is equal
#
# `explain` has every change with the single uses of rules, old form on the left and new form on
# the right. The largest change first:

# %%
explanation = result.explain()
largest = max(explanation.changes, key=lambda change: change.predicted or 0.0)
print("\n".join(line for line in largest.lines()))
print(f"\n{explanation.pairs - explanation.gaps} of {explanation.pairs} equalities explained")
assert explanation.share == 1

# %% [markdown]
# Each rule has grounds of its own: its text, where it comes from, and what was checked of it.

# %%
for rule in largest.rules:
    print(explanation.grounds[rule])

# %% [markdown]
# ## Run it
#
# The result runs, and computes what the original does up to rounding. We run the original in
# plain NumPy to compare, without eqsat's optimiser or ONNX Runtime.

# %%
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run

words = rng.standard_normal((steps, width)).astype(np.float32)
found = result.run(x=words)["logits"]
expected = run(original, {"x": words}, Floats(wide=True))["logits"]
error = float(np.abs(found - expected).max())
print(found.shape, f"largest difference {error:.1e}")
assert error < 1e-4

# %% [markdown]
# ## Write it as ONNX
#
# `save` writes the file whole or not at all. Any ONNX tool reads it; so does `optimize`.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "sru.onnx"
    result.save(path)
    again = eqsat.optimize(path, time_limit=5.0, measure=False)
    print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, {again.report.nodes_before} nodes")
assert again.report.nodes_before <= len(original.nodes) / 2

# %% [markdown]
# Next: [inside the e-graph](inside_the_egraph.ipynb) grows such an e-graph step by step.
