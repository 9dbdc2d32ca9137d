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
# # Write a rule, prove it, and see a false one refuted
#
# eqsat takes rules of your own. We find out that one is missing, write it, have it checked and
# proved, and use it. Then we write one that is false, and get the smallest numbers that show it.

# %%
import numpy as np

import eqsat
from eqsat.rewrites.rules.loader import laws
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.proof.prove import prove
from eqsat.testing import CounterexampleError, check_rewrite

# %% [markdown]
# ## A graph that stays as it is
#
# `relu(x) + relu(-x)` is the absolute value of `x`. Networks with concatenated ReLUs have both
# halves. eqsat leaves them alone:

# %%
g = eqsat.Graph("halves")
x = g.input("x", (64, 128))
g.output("y", eqsat.relu(x) + eqsat.relu(-x))
halves = g.build()
before = eqsat.optimize(halves, measure=False)
print(before.report.operators_after)
assert before.report.operators_after == {"neg": 1, "relu": 2, "add": 1}

# %% [markdown]
# ## Which law is missing?
#
# `prove` takes an equation and looks for a chain of laws from one side to the other. Here the
# halves are transposed first. Where it finds no chain, it names the smallest true equation that
# would close the gap. It is asked of floats alone: the least integer has no absolute value, its
# negation is itself.


# %%
def equation(text):
    (parsed,) = parse_rules(f"asked: {text}", origin="candidate")
    return parsed


known = laws()
turned = equation(
    "transpose(relu(x), perm=p) + transpose(relu(-x), perm=p) => transpose(abs(x), perm=p)"
    " if floating(x)"
)
found = prove(turned, known)
print(f"{found.verdict}: {found.detail}")
assert found.verdict == "undecided"
assert "relu(x) + relu(neg(x)) => abs(x)" in found.detail

# %% [markdown]
# ## Write it
#
# A rule is a name, a pattern and what takes its place. Names such as `x` stand for any tensor.
# The rule is false until it is shown to be true, so it goes to `check_rewrite` first: instances
# of all shapes are drawn, with infinities and NaN among their elements, and Z3 proves it on small
# ones.

# %%
RULE = "two-relus: relu(x) + relu(-x) => abs(x) if floating(x)"
report = check_rewrite(RULE)
print(report)
assert report.proved

# %% [markdown]
# With the rule among the laws, the equation of before has a proof. Each line is one rule in one
# place, and the chain holds in every instance, not only in the one where it was found.

# %%
(mine,) = parse_rules(RULE)
proof = prove(turned, [*known, mine])
print("\n".join(proof.chain))
print(f"{proof.verdict} in {proof.instances} instances")
assert proof.verdict == "proved"
assert "two-relus" in proof.rules

# %% [markdown]
# ## Use it
#
# `rules` adds a text or a file of rules to the library. They are checked before they are used;
# what was found is kept, so that the next run need not check again.

# %%
after = eqsat.optimize(halves, rules=RULE, measure=False)
print(after.report.operators_after)
print(after.explain())
assert after.report.operators_after == {"abs": 1}

# %%
data = np.array([[-2.0, 0.0, 3.0]] * 64, np.float32).repeat(43, axis=1)[:, :128]
y = after.run(x=data)["y"]
print(np.unique(y))
assert np.array_equal(y, np.abs(data))

# %% [markdown]
# ## A false one
#
# A factor passes a maximum: `max(x * s)` is `max(x) * s`. Or so it seems.

# %%
FALSE = "factor-out: reduce_max(x * s, axes=a) => reduce_max(x, axes=a) * s if rank(s) == 0"
try:
    check_rewrite(FALSE, max_examples=40)
except CounterexampleError as error:
    counterexample = error.counterexample
print(counterexample)

# %% [markdown]
# The smallest instance that was found: two elements and a factor that is negative, which turns
# the maximum into a minimum. It comes with a program that needs NumPy and eqsat alone:

# %%
print(counterexample.program)
exec(counterexample.program)
assert counterexample.bindings.tensors["s"].array < 0

# %% [markdown]
# A false rule cannot be used by mistake: `optimize` refuses it in the same way.

# %%
try:
    eqsat.optimize(halves, rules=FALSE, measure=False)
    refused = ""
except eqsat.EqsatError as error:
    refused = str(error)
print(refused.splitlines()[0])
assert "factor-out" in refused

# %% [markdown]
# ## Mend it
#
# The counterexample says which condition is missing. With it, nothing refutes the rule, and Z3
# proves the instances it can hold in its head.

# %%
MENDED = FALSE.replace("if rank(s) == 0", "if rank(s) == 0, is_positive(s)")
mended = check_rewrite(MENDED, max_examples=40)
print(MENDED)
print(mended)
assert mended.proved

# %% [markdown]
# Conditions such as `is_positive` and `rank` are listed with the rules that use them: `eqsat
# rules show` prints the library. To have rules found instead of written, see [an operator of your
# own](your_own_operator.ipynb).
