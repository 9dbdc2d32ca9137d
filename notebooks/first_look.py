# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # A first look
#
# Three products of one input by three weights are one product by the weights side by side. We build the graph, let eqsat
# find that out, and look at what it did.

# %%
import numpy as np

import eqsat

rng = np.random.default_rng(0)
g = eqsat.Graph("projections")
x = g.input("x", (32, 256))
for name in ("q", "k", "v"):
    g.output(name, x @ g.constant(rng.standard_normal((256, 64)).astype(np.float32)))
g.build()

# %% [markdown]
# `progress` is called while the search runs; here it collects how the e-graph grows.

# %%
sizes = []
result = eqsat.optimize(g, time_limit=10.0, measure=False, progress=lambda p: sizes.append((p.phase, p.nodes)))
print(result.report)

# %% [markdown]
# The report also exists as plain data: how the e-graph grew, which rules fired, and how the result was checked.

# %%
for phase, enodes, eclasses, seconds in result.report.growth:
    print(f"{phase:>10} {enodes:>6} e-nodes {eclasses:>6} e-classes {seconds:8.4f} s")
print(result.report.rules_fired)
print(result.report.certificate["text"])

# %% [markdown]
# Each changed value comes with the rules that lead from its old form to its new one.

# %%
print(result.explain())

# %% [markdown]
# The result runs, and computes what the three products do.

# %%
data = rng.standard_normal((32, 256)).astype(np.float32)
found = result.run(x=data)
graph = g.build()
for name, value in graph.outputs.items():
    weight = next(n for n in graph.nodes if n.outputs[0] == value).inputs[1]
    error = np.abs(found[name] - data @ graph.constants[weight].array).max()
    print(name, found[name].shape, f"largest difference {error:.1e}")
    assert error < 1e-3
