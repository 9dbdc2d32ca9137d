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
# # Measured costs and layouts
# The cheapest graph depends on the machine. We measure single operators, evaluate the accuracy of
# estimates, let measured costs decide on the layout of a matrix, and choose a precision for a
# GPU, without needing one.

# %%
# %matplotlib inline
import math
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import eqsat
from eqsat.commands.costs.keys import keys_of_model
from eqsat.costs.devices.device import Device
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment
from eqsat.costs.model.fit import known_work
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.measuring.measure import fill, measure
from eqsat.costs.table.shipped import shipped_records
from eqsat.costs.table.table import CostTable
from eqsat.costs.model.validation import validate
from eqsat.steps.settings import choices_for

# %% [markdown]
# ## One operator
# A *key* contains everything on which the time of an operator depends: its name, its attributes,
# the types of its operands, and which of these are constants (marked by `=`). `measure` runs many
# copies of the operator on ONNX Runtime, on one thread, and subtracts the fixed cost of a session.

# %%
key = OpKey.parse("matmul {} float32[64, 256] =float32[256, 256]")
entry = measure(key)
print(f"median {1e6 * entry.seconds:.1f} µs, 10 % below {1e6 * entry.p10:.1f}, ", end="")
print(f"10 % above {1e6 * entry.p90:.1f}, {entry.samples} rounds")
assert 0 <= entry.p10 <= entry.seconds <= entry.p90

# %% [markdown]
# ## Accuracy of estimates
#
# Operators without a measurement are estimated. eqsat ships measured operators of one machine. The
# plot shows the estimate of a plain roofline against the measured time, one point for each
# operator. On the line, both agree.

# %%
device = Device.of("onnxruntime-cpu")
shipped = {record.key: record.entry for record in shipped_records(device.name)}
pairs = [
    (entry.seconds, device.roofline(work))
    for text, entry in shipped.items()
    if (work := known_work(text)) is not None and entry.seconds > 0
]
measured, estimated = np.array(pairs).T
figure = Figure(figsize=(4.2, 3.6), layout="constrained")
axes = figure.subplots()
axes.loglog(measured, estimated, ".", markersize=3, alpha=0.4)
axes.axline((1e-6, 1e-6), (1e-3, 1e-3), color="0.5", linewidth=1)
axes.set(xlabel="measured, seconds", ylabel="roofline, seconds")
figure

# %% [markdown]
# Estimates are fitted to measured entries. To evaluate the fit by cross-validation, each fifth of
# the operators is estimated from the others. A factor of 1.1 is 10 % above or below.

# %%
checked = validate(device, shipped)
rows = [(v.variant, v.entries, v.roofline[0], v.fitted[0]) for v in checked.variants[:6]]
rows.append(
    ("all", checked.overall.entries, checked.overall.roofline[0], checked.overall.fitted[0])
)
print("operator     entries   roofline     fitted")
for variant, entries, before, after in rows:
    print(f"{variant:<12} {entries:7}   x {before:6.2f}   x {after:6.2f}")
assert checked.overall.fitted[0] < checked.overall.roofline[0]

# %% [markdown]
# ## A table
# Measured costs are stored in one file for all runs. Here we use a separate one, in a temporary
# folder. The model is a product whose left operand is transposed:

# %%
folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "turned.onnx"
g = eqsat.Graph("turned")
a, b = g.input("a", (512, 512)), g.input("b", (512, 64))
g.output("y", eqsat.transpose(a) @ b)
model = g.build()
eqsat.optimize(model, measure=False).save(path)

# %% [markdown]
# A matrix can be stored by rows or by columns, and a transposition from one to the other moves no
# data. So the integer program may choose a product that reads `a` as it is stored. The list of keys
# has all implementations for this model; `@column` marks matrices stored by columns.

# %%
choices, _ = choices_for(device, "auto", "exact")
keys = list(dict.fromkeys(keys_of_model(path, device, {}, choices, fused=0)))
for key in keys:
    print(key.text)
assert any("@column" in key.text for key in keys)

# %% [markdown]
# `fill` measures the missing entries of the table. A second call finds all entries there. On the
# command line this is `eqsat measure model.onnx`.

# %%
table = CostTable(Path(folder.name) / "costs.sqlite3", shipped=False)
first, second = fill(keys, table), fill(keys, table)
print(f"first: {first.measured} measured; second: {second.measured} measured, {second.known} known")
here = Environment.current()
entries = table.own(here)
for text, entry in sorted(entries.items(), key=lambda item: item[1].seconds):
    print(f"{1e6 * entry.seconds:8.1f} µs  {text}")
assert second.measured == 0

# %% [markdown]
# ## Measured costs decide
# With this table, all costs are measured ones. We choose once among all layouts and once with
# rows alone. Each line gives the layouts of operands and result; a transposition that moves no data
# takes no time.


# %%
def chosen(layouts, table):
    result = eqsat.optimize(model, layouts=layouts, table=table, measure=False)
    for step in result.report.steps:
        held = f"{', '.join(step.operands)} -> {step.result}"
        print(f"  {step.op:<15} {held:<22} {1e6 * step.seconds:8.1f} µs")
    print(f"  estimated share of the cost: {100 * result.report.estimated_share:.0f} %")
    return result


print("rows alone:")
rows_alone = chosen(["row"], table)
print("any layout:")
any_layout = chosen("auto", table)
assert any_layout.report.estimated_share == 0
least = rows_alone.report.cost_after * (1 + 1e-9)  # costs are told apart no closer
assert any_layout.report.cost_after <= least

# %% [markdown]
# The best layout depends on this machine. To show that the table decides, we use artificial tables:
# first, a product that reads columns takes a second, and everything else a microsecond.


# %%
def machine(seconds):
    """A table in memory with the cost of each implementation, by a function of its key."""
    made = CostTable(":memory:", shipped=False)
    for key in keys:
        made.put(here, key, Entry(*[seconds(key.text)] * 3, 20))
    return made


print("columns are slow:")
slow = chosen("auto", machine(lambda text: 1.0 if "matmul" in text and "@" in text else 1e-6))
print("transposing is slow:")
still = chosen("auto", machine(lambda text: 1.0 if "transpose" in text else 1e-6))


def reads(result):
    return next(step.operands for step in result.report.steps if step.op == "matmul")


assert reads(slow) == ["row"]
assert "column" in reads(still)
table.close()
folder.cleanup()

# %% [markdown]
# ## Precision
# A lower precision is an approximation, so it is never an equality in the e-graph: it is a state
# of a value, chosen together with the graph, and the result is compared with the exact one. The
# example plans for a GPU that this machine need not have; its costs are estimates. A policy gives
# the allowed precisions, and the tolerance of outputs. Products use float16, and sensitive
# operators, such as softmax, keep float32.

# %%
rng = np.random.default_rng(0)
g = eqsat.Graph("mlp")
x = g.input("x", (256, 512))
for width in (1024, 256, 768):
    w = g.constant(rng.standard_normal((x.shape[-1], width)).astype(np.float32) / 32)
    x = eqsat.relu(x @ w)
g.output("y", eqsat.softmax(x, axis=-1))
mlp = g.build()
policy = eqsat.PrecisionPolicy(precisions=("float16",))
within = {"error": 5e-3}
exact = eqsat.optimize(mlp, device="nvidia-h200", measure=False)
lower = eqsat.optimize(mlp, device="nvidia-h200", precision=policy, limits=within, measure=False)
for step in lower.report.steps:
    print(f"{step.op:<16} {', '.join(step.operands):<16} -> {step.result}")
print(f"predicted: {1e6 * exact.report.cost_after:.1f} µs exact, ", end="")
print(f"{1e6 * lower.report.cost_after:.1f} µs with float16")
print(lower.report.certificate.text)
assert lower.report.cost_after < exact.report.cost_after
assert any("float16" in step.result for step in lower.report.steps)

# %% [markdown]
# The Pareto front of time and error has every graph that no other graph beats in both. Each point
# has another set of values in float16.

# %%
front = eqsat.pareto(mlp, "time", "error", device="nvidia-h200", precision=policy, time_limit=30.0)
print(front)
front.plot()

# %%
points = front.points
assert len(points) > 2
assert math.isclose(points[-1]["error"], 0.0, abs_tol=1e-12)
