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
# We optimise a small recurrent text classifier, read the report line by line, and check the
# result: its changes, the rules behind them, its correctness and its speed.

# %%
# %matplotlib inline
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import eqsat

# %% [markdown]
# ## A model
# A *simple recurrent unit* reads one word in each step. Each step multiplies its word by the same
# three weights; only the state `c` is passed to the next step. Graphs can be built in Python, as
# here, or read from ONNX: `optimize` also takes a path.

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
# One call runs all steps. `progress` is called while the search runs; here it only records the
# phases. Then we show the result, which displays its report.

# %%
phases = []
result = eqsat.optimize(original, progress=lambda p: phases.append(p.phase))
print(" -> ".join(dict.fromkeys(phases)))
result

# %% [markdown]
# ## The report, line by line
# **read**: the number of nodes of the graph. Every line ends with its time in seconds.
#
# **saturate**: the graph became an *e-graph*, which represents many graphs at once. An *e-node* is
# an operator; an *e-class* is a set of e-nodes that compute the same tensor. Rules added equal
# forms until they found nothing new within a radius of the original. The report has the numbers
# after each step:

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
# The number of e-nodes grows, that of e-classes hardly: most e-nodes that rules add are other
# forms of existing tensors.

# %%
fired = sorted(report.rules_fired.items(), key=lambda item: -item[1])
for rule, times in fired[:6]:
    print(f"{times:5}  {rule}")
assert report.enodes > 4 * len(original.nodes)

# %% [markdown]
# **extract**: an integer program selected the cheapest graph in the e-graph. The *gap* bounds the
# saving of any better choice: at 0 % there is none. The cost is a prediction, by a model of this
# device or from measurements on it.

# %%
print(f"chosen {report.cost_after:.3g} s, no choice is below {report.lower_bound:.3g} s")
for other in report.baselines:
    print(f"{other.name:>13} found {other.cost:.3g} s")
assert report.cost_after < report.cost_before
assert report.gap < 0.01

# %% [markdown]
# **measure**: the original and the finalists ran alternately on ONNX Runtime. The original is kept
# unless the upper 95 % bound of new/old is below 1, so that noise does not decide.

# %%
print(f"kept: {report.kept}, {report.kept_because}")
print(f"new/old is {report.measured_ratio:.3f}, at most {report.measured_bound:.3f} (95 %), in {report.rounds} rounds")
assert report.measured_ratio <= report.measured_bound < 1

# %% [markdown]
# **certify**: the result was compared with the original, region by region, exactly modulo a prime
# where the operators allow it and in float64 elsewhere. This check does not use the rules, so it
# also detects wrong rules.

# %%
print(report.certificate.text)
assert report.certificate.kind != "none"
assert report.certificate.error < 1e-3

# %% [markdown]
# **The first table** lists changes: the old and the new operators, the reduction in nodes, the
# predicted and the measured saving, and the rules behind each change. **The second table** lists
# the operators of the result. In numbers: many small products became a few large ones.

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
# `explain` lists every change with its rule applications, the old form on the left and the new
# form on the right. Here is the largest change:

# %%
explanation = result.explain()
largest = max(explanation.changes, key=lambda change: change.predicted or 0.0)
print("\n".join(line for line in largest.lines()))
print(f"\n{explanation.pairs - explanation.gaps} of {explanation.pairs} equalities explained")
assert explanation.share == 1

# %% [markdown]
# The evidence of each rule gives its text, its origin, and its checks.

# %%
for rule in largest.rules:
    print(explanation.grounds[rule])

# %% [markdown]
# ## Run it
# The result computes the same values as the original, up to rounding. To compare, we run the
# original in plain NumPy, without eqsat's optimiser or ONNX Runtime.

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
# `save` writes the file completely or not at all. Any ONNX tool reads it; so does `optimize`.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "sru.onnx"
    result.save(path)
    again = eqsat.optimize(path, time_limit=5.0, measure=False)
    print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, {again.report.nodes_before} nodes")
assert again.report.nodes_before <= len(original.nodes) / 2

# %% [markdown]
# Next: [inside the e-graph](inside_the_egraph.ipynb) grows an e-graph step by step.
