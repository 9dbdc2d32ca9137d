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
# eqsat accepts your own rules. We find a missing rule, write it, have it checked and proved, and
# use it. Then we write a false rule, and get a minimal counterexample.

# %%
import numpy as np

import eqsat
from eqsat.rewrites.rules.loader import laws
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.proof.prove import prove
from eqsat.testing import CounterexampleError, check_rewrite

# %% [markdown]
# ## A graph that stays as it is
# The larger of two tensors less the smaller of them is how far they are apart. eqsat does not know:

# %%
g = eqsat.Graph("extremes")
x, y = g.input("x", (64, 128)), g.input("y", (64, 128))
g.output("apart", eqsat.maximum(x, y) - eqsat.minimum(x, y))
extremes = g.build()
before = eqsat.optimize(extremes, measure=False)
print(before.report.operators_after)
assert before.report.operators_after == {"maximum": 1, "minimum": 1, "sub": 1}

# %% [markdown]
# ## Which law is missing?
# `prove` takes an equation and searches for a chain of laws from one side to the other. Here both
# are transposed first. If it finds no chain, it gives the smallest true equation that would
# complete the proof.


# %%
def equation(text):
    (parsed,) = parse_rules(f"asked: {text}", origin="candidate")
    return parsed


known = laws()
turned = equation(
    "transpose(maximum(x, y), perm=p) - transpose(minimum(x, y), perm=p)"
    " => transpose(abs(x - y), perm=p) if same_shape(x, y), floating(x)"
)
found = prove(turned, known)
print(f"{found.verdict}: {found.detail}")
assert found.verdict == "undecided"
assert "maximum(x, y) - minimum(x, y) => abs(x - y)" in found.detail

# %% [markdown]
# ## Write it
# A rule has a name, a pattern and a replacement. Names such as `x` stand for any tensor. A rule
# must be verified before use, so we call `check_rewrite` first: it draws instances
# of all shapes, with infinities and NaN among their elements, and Z3 proves the rule on small
# ones.

# %%
RULE = "two-extremes: maximum(x, y) - minimum(x, y) => abs(x - y) if floating(x)"
report = check_rewrite(RULE)
print(report)
assert report.proved

# %% [markdown]
# With the rule as a further law, the earlier equation has a proof. Each line applies one rule at
# one place, and the chain holds in every instance, not only in the one where it was found.

# %%
(mine,) = parse_rules(RULE)
proof = prove(turned, [*known, mine])
print("\n".join(proof.chain))
print(f"{proof.verdict} in {proof.instances} instances")
assert proof.verdict == "proved"
assert "two-extremes" in proof.rules

# %% [markdown]
# ## Use it
# `rules` adds a text or a file of rules to the library. They are checked before use, and the
# evidence is stored, so that the next run need not check again.

# %%
after = eqsat.optimize(extremes, rules=RULE, measure=False)
print(after.report.operators_after)
print(after.explain())
assert after.report.operators_after == {"sub": 1, "abs": 1}

# %%
data = np.array([[-2.0, 0.0, 3.0]] * 64, np.float32).repeat(43, axis=1)[:, :128]
made = after.run(x=data, y=2 * data)["apart"]
print(np.unique(made))
assert np.array_equal(made, np.abs(data))

# %% [markdown]
# ## A false one
# Multiplication by a factor seems to commute with a maximum: `max(x * s)` is `max(x) * s`.

# %%
FALSE = "factor-out: reduce_max(x * s, axes=a) => reduce_max(x, axes=a) * s if rank(s) == 0"
try:
    check_rewrite(FALSE, max_examples=40)
except CounterexampleError as error:
    counterexample = error.counterexample
print(counterexample)

# %% [markdown]
# The smallest instance found has two elements and a negative factor, which turns the maximum into
# a minimum. It includes a program that needs NumPy and eqsat alone:

# %%
print(counterexample.program)
exec(counterexample.program)
assert counterexample.bindings.tensors["s"].array < 0

# %% [markdown]
# A false rule cannot be used by mistake: `optimize` refuses it too.

# %%
try:
    eqsat.optimize(extremes, rules=FALSE, measure=False)
    refused = ""
except eqsat.EqsatError as error:
    refused = str(error)
print(refused.splitlines()[0])
assert "factor-out" in refused

# %% [markdown]
# ## Correct it
#
# The counterexample shows the missing condition. With this condition, no instance refutes the
# rule, and Z3 proves small instances.

# %%
CORRECTED = FALSE.replace("if rank(s) == 0", "if rank(s) == 0, is_positive(s)")
corrected = check_rewrite(CORRECTED, max_examples=40)
print(CORRECTED)
print(corrected)
assert corrected.proved

# %% [markdown]
# `eqsat rules show` prints the library with conditions such as `is_positive` and `rank`. To have
# rules generated instead of written, see [an operator of your own](your_own_operator.ipynb).
