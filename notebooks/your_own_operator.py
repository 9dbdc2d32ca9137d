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
# # An operator of your own
#
# An operator is declared once, by its arithmetic and by what is known of it. Types, laws, a place
# in the e-graph, running and export follow. We declare squared ReLU, an activation that ONNX
# lacks, and then declare another one wrongly to see what happens.

# %%
import numpy as np

import eqsat
from eqsat.rewrites.rules.derive import derived_laws
from eqsat.testing import CounterexampleError, check_rewrite

# %% [markdown]
# ## Declare it
#
# The reference computes the operator by `xp`, an arithmetic that may be that of floats, of
# residues or of Z3's terms. `pointwise` says that each element depends on the same element of the
# operands alone, `monotone` that larger operands give no smaller results. `laws` has what does
# not follow from these: here, what it is in operators that eqsat knows.


# %%
@eqsat.op(pointwise=True, laws=["squared_relu(x) => relu(x) * relu(x)"])
def squared_relu(xp, x):
    """The square of the positive part of x (So et al., Primer, NeurIPS 2021)."""
    positive = xp.maximum(x, xp.number(0, x))
    return xp.multiply(positive, positive)


# %% [markdown]
# ## What follows from it
#
# These laws were written by nobody: they follow from the one word `pointwise`.

# %%
implied = derived_laws([squared_relu])
for law in implied:
    print(str(law)[:98])
assert any("transpose" in law.name for law in implied)

# %% [markdown]
# ## Use it
#
# Like any operator, it takes tensors and knows their types. In this graph a transposition comes
# before it and another one after it, as exporters like to leave them.

# %%
g = eqsat.Graph("turned")
x = g.input("x", ("batch", 64, 32))
turned = eqsat.squared_relu(eqsat.transpose(x, (0, 2, 1)))
print(turned)
g.output("y", eqsat.transpose(turned, (0, 2, 1)))

# %% [markdown]
# The first call checks the declaration and its laws, which takes some seconds; what was found is
# kept in a file for the next time. Then the two transpositions meet and are gone.

# %%
result = eqsat.optimize(g, measure=False)
print(result.report.operators_before, "->", result.report.operators_after)
print([rule for rule in result.report.rules_fired if "squared_relu" in rule])
assert result.report.operators_after == {"squared_relu": 1}

# %% [markdown]
# ## A law of your own
#
# The halves of squared ReLU make a square. Z3 proves it, since both sides are polynomials on
# either side of zero, so it can be used as a rule like any other.

# %%
RULE = "two-halves: squared_relu(x) + squared_relu(-x) => x * x"
checked = check_rewrite(RULE)
print(checked)
assert checked.proved

# %%
g = eqsat.Graph("halves")
x = g.input("x", (64, 32))
g.output("y", eqsat.squared_relu(x) + eqsat.squared_relu(-x))
halves = g.build()
without = eqsat.optimize(halves, measure=False)
with_rule = eqsat.optimize(halves, rules=RULE, measure=False)
print("library alone:", without.report.operators_after)
print("with the rule:", with_rule.report.operators_after)
assert with_rule.report.operators_after == {"mul": 1}

# %% [markdown]
# ## Run and export it
#
# ONNX has no squared ReLU. The law that says of any operand what it is defines it, so it is
# written out by that law, for ONNX and for ONNX Runtime.

# %%
data = np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(1, 64, 32)
y = result.run(x=data)["y"]
print("largest difference", np.abs(y - np.maximum(data, 0) ** 2).max())
model = result.to_onnx()
print([node.op_type for node in model.graph.node])
assert np.allclose(y, np.maximum(data, 0) ** 2)
assert {node.op_type for node in model.graph.node} <= {"Relu", "Mul"}

# %% [markdown]
# ## When a declaration is wrong
#
# `centre` takes the mean of the last axis from each element. That it is linear is right. The
# index form says that each element of `n` depends on the same `n` alone, which is wrong: the mean
# has all of them.


# %%
@eqsat.op(index="... n -> ... n", multilinear=(0,))
def centre(xp, x):
    """x less the mean over its last axis."""
    mean = xp.divide(xp.einsum("...n->...", x), xp.number(x.shape[-1], x))
    return xp.subtract(x, mean[..., None])


# %% [markdown]
# A declaration is a claim, and what it implies is put to the reference like any rule. One of its
# laws says that factors along `n` pass:

# %%
claimed = next(law for law in derived_laws([centre]) if law.name == "centre-of-scaled-along-n")
try:
    check_rewrite(claimed, max_examples=40)
except CounterexampleError as error:
    counterexample = error.counterexample
print("\n".join(str(counterexample).splitlines()[1:]))
assert counterexample.left != counterexample.right

# %% [markdown]
# So nothing that rests on it is ever used. `optimize` refuses to begin, and says what to correct:

# %%
try:
    eqsat.optimize(halves, measure=False)
    message = ""
except eqsat.EqsatError as error:
    message = str(error)
print(message)
assert "implies a false law" in message

# %% [markdown]
# A declared operator also takes part where rules are found instead of written: `eqsat rules
# generate --import my_operators.py` lists graphs that compute the same, and proves what it finds.
