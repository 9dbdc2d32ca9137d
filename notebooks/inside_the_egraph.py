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
# # Inside the e-graph
# `optimize` performs a run in one call. `explore` performs it step by step: we grow an e-graph,
# see which rules fire and where, list every equal form of one tensor, follow the chain of rules
# from the original form to the chosen one, and change a cost to change the choice.

# %%
# %matplotlib inline
import tempfile
from pathlib import Path

import numpy as np

import eqsat

# %% [markdown]
# ## A small model
# The same layer is applied to two vectors, and the results are compared. The model is small enough
# to show completely. `steps` limits the run by counted work in place of time. Costs are then the
# shipped ones, not scaled to this machine, so that the choices below are the same everywhere.

# %%
rng = np.random.default_rng(0)
g = eqsat.Graph("twins")
a, b = g.input("a", (1, 256)), g.input("b", (1, 256))
w = g.constant((rng.standard_normal((256, 256)) / 16).astype(np.float32), name="w")
left = eqsat.relu(a @ w)
right = eqsat.relu(b @ w)
g.output("score", eqsat.reduce_max(left * right, axes=(1,)))
ex = eqsat.explore(g, steps=1_000_000)
print(ex)

# %% [markdown]
# The e-graph has not grown yet: there is one e-node for each input, constant and operator, and
# each is alone in its e-class.
#
# ## Step by step
# A step matches all rules of one phase, once. The first phase simplifies. Here its rules match,
# but their conditions are not met: the last column gives the reason.

# %%
first = ex.step()
assert first.after == first.before
first

# %% [markdown]
# We continue to the first step that adds a merged product. `where` names the tensors at which a
# rule fired.

# %%
steps = [first]
while "matmuls-merge-rows" not in steps[-1].fired:
    steps.append(ex.step())
    print(steps[-1].title)
merged = steps[-1]
merged

# %% [markdown]
# This rule is the decisive one: two products share a weight, so it added one product of both rows,
# with a slice for each. Both old products are still there; rules never remove a form.

# %%
print(merged.where["matmuls-merge-rows"])
assert set(merged.where["matmuls-merge-rows"]) == {"matmul_0", "matmul_1"}

# %% [markdown]
# `grow` performs all remaining steps.

# %%
rest = ex.grow()
print(rest.title)
assert rest.stopped_by in ("saturated", "radius_limit")

# %%
figure = ex.growth()
figure.set_size_inches(6.6, 4.2)
figure

# %% [markdown]
# ## Every equal form of one tensor
# An e-class can be named by a tensor of the graph, by the name of a value or an output, or by its
# number. These are all forms of `left` that were found, with the cost of the operator alone and
# with all its operands.

# %%
forms = ex.eclass(left)
assert any(form.original for form in forms)
assert forms.chosen is not None and not forms.chosen.original
forms

# %% [markdown]
# The original form is cheaper by itself. It is not chosen, since the operands of the other form are
# shared with `right`. The operands have e-classes of their own: the product has more forms.

# %%
product = ex.eclass("matmul_0")
assert len(product) >= 3
product

# %% [markdown]
# ## From the original to the chosen form
# `why` gives the chain of rules from one form to another, here from the original to the chosen one.
# The first chain is that of `left`; the one below it is that of an operand that it uses.

# %%
chain = ex.why(left)
assert chain.gaps == 0
assert {"relu-of-slice", "matmuls-merge-rows"} <= set(chain.rules)
chain

# %% [markdown]
# ## The choice
# The integer program considers all forms at once. Greedy choice decides tensor by tensor: it shares
# the merged product too, but cuts it by two slices, where one split for both costs less.

# %%
choice = ex.choice
greedy = ex.choose("greedy")
print(choice)
assert choice.cost < greedy.cost
assert ex.choose("ilp").cost == choice.cost

# %% [markdown]
# ## Change a cost
# What if slicing were slow? `reprice` changes the cost of an operator, or of a single form,
# and repeats the choice in the same e-graph. While slices cost a little more, the choice stays;
# beyond a threshold, it flips.

# %%
was = ex.best[left].enode
for extra in (1e-7, 1e-6, 3e-6, 1e-5):
    flips = ex.reprice("slice", lambda cost, extra=extra: cost + extra)
    chosen = ex.best[left]
    print(f"slices {1e6 * extra:4.1f} µs more: {len(flips)} flips, left by {chosen.op}")
    ex.undo()
assert ex.best[left].enode == was

# %%
flips = ex.reprice("slice", 1e-4)
assert len(flips) > 0
assert ex.best[left].original
flips

# %% [markdown]
# The cost of a single form can be changed too. We undo the change of slices, and set the cost of
# the chosen form of `left` alone to a second. The merged product stays, and is now sliced before
# `relu`:

# %%
ex.undo()
flips = ex.reprice(ex.best[left], 1.0)
assert ex.best[left].enode != was
flips

# %%
back = ex.undo()
assert ex.repriced == ()
assert ex.best[left].enode == was
back

# %% [markdown]
# ## Side by side
# The original and the chosen graph, with costs on the nodes. Changed parts are coloured.

# %%
ex.diff()

# %% [markdown]
# ## As tables
# The same information is available as tables. `table` has a row for each e-node, `firings` one for
# each step and rule, `costs` one for each kernel that runs.

# %%
firings = ex.firings()
by_rule = firings.groupby("rule")["fired"].sum().sort_values(ascending=False)
assert by_rule["matmuls-merge-rows"] >= 1
by_rule.head(6).to_frame()

# %%
ex.costs()[["op", "value", "seconds", "measured"]]

# %% [markdown]
# ## The end of the run
# `ex.optimize` uses the e-graph as it is, chooses at the current costs, and certifies: after
# `grow`, the result is that of `eqsat.optimize`. `save` writes the whole run as one page, to open
# in a browser or to share.

# %%
result = ex.optimize(measure=False)
print(result.report.certificate.text)
vectors = {name: rng.standard_normal((1, 256)).astype(np.float32) for name in ("a", "b")}
score = result.run(**vectors)["score"]
weights = g.build().constants["w"].array
expected = np.max(np.prod([np.maximum(v @ weights, 0) for v in vectors.values()], axis=0))
print(float(score[0]), float(expected))
assert np.isclose(score[0], expected, rtol=1e-4)

# %%
with tempfile.TemporaryDirectory() as folder:
    page = Path(folder) / "twins.html"
    ex.save(page)
    print(f"{page.name}: {page.stat().st_size // 1000} kB")
