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
# An operator is declared once, by its arithmetic and its properties. Its types, laws, encoding in
# the e-graph, execution and export follow. We declare squared ReLU, an activation that ONNX
# lacks, and then another operator with an error in its declaration.

# %%
import numpy as np

import eqsat
from eqsat.rewrites.rules.derive import derived_laws
from eqsat.testing import CounterexampleError, check_rewrite

# %% [markdown]
# ## Declare it
# The reference computes the operator with `xp`, an arithmetic of floats, residues or Z3 terms.
# `pointwise` states that each element depends only on the same element of the operands. `laws` has
# the laws that do not follow from such properties: here, the definition by operators that eqsat
# knows.


# %%
@eqsat.op(pointwise=True, laws=["squared_relu(x) => relu(x) * relu(x)"])
def squared_relu(xp, x):
    """The square of the positive part of x (So et al., Primer, NeurIPS 2021)."""
    positive = xp.maximum(x, xp.number(0, x))
    return xp.multiply(positive, positive)


# %% [markdown]
# ## What follows from it
# Nobody wrote these laws: they follow from `pointwise` alone.

# %%
implied = derived_laws([squared_relu])
for law in implied:
    print(str(law)[:98])
assert any("transpose" in law.name for law in implied)

# %% [markdown]
# ## Use it
# Like any operator, it takes tensors and infers types. In this graph, a transposition comes
# before it and another one after it, as exporters often write them.

# %%
g = eqsat.Graph("turned")
x = g.input("x", ("batch", 64, 32))
turned = eqsat.squared_relu(eqsat.transpose(x, (0, 2, 1)))
print(turned)
g.output("y", eqsat.transpose(turned, (0, 2, 1)))

# %% [markdown]
# The first call checks the declaration and its laws, which takes some seconds; the evidence is
# stored in a file for later calls. Then rules move the two transpositions together, and they
# cancel.

# %%
result = eqsat.optimize(g, measure=False)
print(result.report.operators_before, "->", result.report.operators_after)
print([rule for rule in result.report.rules_fired if "squared_relu" in rule])
assert result.report.operators_after == {"squared_relu": 1}

# %% [markdown]
# ## A law of your own
# The two halves of squared ReLU add up to a square. Z3 proves this, since both sides are
# polynomials above and below zero, so it can be used as a rule.

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
# ONNX has no squared ReLU. Its law holds for any operand, without a condition, so it is a
# definition: the operator is expanded by this law, for ONNX and for ONNX Runtime.

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
# `centre` subtracts the mean of the last axis from each element. It is linear, as declared. But its
# index form states that each element along `n` depends on the same element alone, which is
# wrong: the mean depends on all of them.


# %%
@eqsat.op(index="... n -> ... n", multilinear=(0,))
def centre(xp, x):
    """x less the mean over its last axis."""
    mean = xp.divide(xp.einsum("...n->...", x), xp.number(x.shape[-1], x))
    return xp.subtract(x, mean[..., None])


# %% [markdown]
# The laws that a declaration implies are checked against the reference, like any rule. One of
# these laws states that multiplication by factors along `n` commutes with `centre`:

# %%
claimed = next(law for law in derived_laws([centre]) if law.name == "centre-of-scaled-along-n")
try:
    check_rewrite(claimed, max_examples=40)
except CounterexampleError as error:
    counterexample = error.counterexample
print("\n".join(str(counterexample).splitlines()[1:]))
assert counterexample.left != counterexample.right

# %% [markdown]
# So no law of this declaration is ever used. `optimize` stops with an error that describes the
# correction:

# %%
try:
    eqsat.optimize(halves, measure=False)
    message = ""
except eqsat.EqsatError as error:
    message = str(error)
print(message)
assert "implies a false law" in message

# %% [markdown]
# Rules with a declared operator can also be generated: `eqsat rules generate --import
# my_operators.py` enumerates graphs and lists those that are equal.
