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
# # The first hour
# We optimise a small transformer, see what changed and why, save the result and run it.
#
# To follow, install eqsat with the packages for tables and plots, and JupyterLab. From a clone:
#
# ```sh
# pip install '.[explore,notebooks]'
# ```

# %%
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import eqsat

# %% [markdown]
# ## A model as exporters write it
# Usually the model is a file that another framework exported. Here we write one ourselves: an
# layer of a transformer, whose author looped over the words. Exporters unroll loops: the file has
# four small products for every word. Layer norm and GELU consist of single operators, too.

# %%
words, width = 4, 128
rng = np.random.default_rng(0)
nodes, weights = [], []


def constant(array, name=None):
    name = name or f"constant_{len(weights)}"
    weights.append(numpy_helper.from_array(np.asarray(array), name))
    return name


def op(kind, *inputs, **attrs):
    output = f"{kind}_{len(nodes)}"
    nodes.append(helper.make_node(kind, list(inputs), [output], **attrs))
    return output


def split(x):
    names = [f"{x}.{number}" for number in range(words)]
    nodes.append(helper.make_node("Split", [x], names, axis=0, num_outputs=words))
    return names


def f32(number):
    return constant(np.float32(number))


def weight(name, *shape):
    return constant((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), name)


def linear(x, kernel, bias):
    return op("Add", op("MatMul", x, kernel), bias)


def dense(name, inside, outside):
    return weight(f"{name}.weight", inside, outside), weight(f"{name}.bias", outside)


def layer_norm(x, name):
    centred = op("Sub", x, op("ReduceMean", x, constant(np.array([-1]))))
    variance = op("ReduceMean", op("Mul", centred, centred), constant(np.array([-1])))
    scaled = op("Div", centred, op("Sqrt", op("Add", variance, f32(1e-5))))
    gain = constant(rng.uniform(0.5, 1.5, width).astype(np.float32), f"{name}.weight")
    return op("Add", op("Mul", scaled, gain), constant(np.zeros(width, np.float32), f"{name}.bias"))


def gelu(x):
    inside = op("Add", op("Erf", op("Div", x, f32(np.sqrt(2)))), f32(1))
    return op("Mul", op("Mul", x, inside), f32(0.5))


def attention(x, name):
    parts = [dense(f"{name}.{part}", width, width) for part in ("query", "key", "value")]
    rows = split(x)
    query, key, value = ([linear(row, *part) for row in rows] for part in parts)
    keys = op("Transpose", op("Concat", *key, axis=0), perm=[1, 0])
    values = op("Concat", *value, axis=0)
    mixed = []
    for row in query:
        scores = op("Mul", op("MatMul", row, keys), f32(1 / np.sqrt(width)))
        mixed.append(op("MatMul", op("Softmax", scores, axis=-1), values))
    return linear(op("Concat", *mixed, axis=0), *dense(f"{name}.output", width, width))


# %% [markdown]
# The parts are joined, and the file is written like any other.

# %%
x = layer_norm(op("Add", "hidden", attention("hidden", "attention")), "norm1")
wide = gelu(linear(x, *dense("up", width, 2 * width)))
x = layer_norm(op("Add", x, linear(wide, *dense("down", 2 * width, width))), "norm2")


def tensor(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [words, width])


graph = helper.make_graph(nodes, "encoder", [tensor("hidden")], [tensor(x)], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
folder = tempfile.TemporaryDirectory()
source = Path(folder.name) / "encoder.onnx"
onnx.save(model, source)
onnx.checker.check_model(source)
print(f"{source.name}: {len(nodes)} nodes, {source.stat().st_size / 1e6:.1f} MB")
assert len(nodes) > 60

# %% [markdown]
# ## Optimise it in one line
# `optimize` reads the file, finds equal graphs, chooses the cheapest one, measures it against the
# original, and checks it. A result shows its report.

# %%
result = eqsat.optimize(source, time_limit=15)
result

# %% [markdown]
# Everything in the report is also data. The search ended with a proof of how much any other choice
# could save, and the check compared each changed region with the original:

# %%
report = result.report
print(f"{report.nodes_before} -> {report.nodes_after} nodes, {report.enodes} e-nodes seen")
print(f"predicted {report.cost_before * 1e6:.0f} -> {report.cost_after * 1e6:.0f} µs")
print(f"kept: {report.kept}, {report.kept_because}")
assert report.cost_after < report.cost_before
assert report.certificate.kind != "none"

# %% [markdown]
# ## See what changed
# Each change is a region of the graph, with the rules that lead from its old form to the new one.

# %%
explanation = result.explain()
for change in explanation.changes:
    print(f"{change.what}")
    print(f"    by {', '.join(change.rules[:4])}{' …' * (len(change.rules) > 4)}")
assert explanation.changes

# %% [markdown]
# ## Look around
# `explore` takes the same arguments as `optimize`, and keeps the e-graph at hand. `grow` fills it:

# %%
explorer = eqsat.explore(source, time_limit=15)
explorer.grow()

# %% [markdown]
# The file computes attention word by word, and joins the rows. These are all forms of the joined
# rows that were found, with their costs:

# %%
mixed = next(node.output[0] for node in reversed(nodes) if node.op_type == "Concat")
forms = explorer.eclass(mixed)
forms

# %% [markdown]
# `why` gives the chain of rules between two forms: from the one in the file to a single product.

# %%
original = next(form for form in forms if form.original)
single = next(form for form in forms if form.op == "matmul")
assert original.op == "concat" and single.total < original.total
explorer.why(original, single)

# %% [markdown]
# The original and the result side by side, changed nodes coloured and numbered; below the picture
# is a page to click through. `save` writes that page as a file, which needs no network:

# %%
page = Path(folder.name) / "encoder.html"
explorer.optimize(measure=False)
explorer.save(page)
text = page.read_text(encoding="utf-8")
print(f"{page.name}: {len(text) / 1e3:.0f} kB, the report inside: {'saturate' in text}")
assert "saturate" in text

# %% [markdown]
# ## Save it and run it
# The result is an ONNX file again. Any runtime takes it; here ONNX Runtime runs both files.

# %%
target = source.with_name("encoder.fast.onnx")
result.save(target)
hidden = rng.standard_normal((words, width)).astype(np.float32)
outputs = [
    onnxruntime.InferenceSession(path).run(None, {"hidden": hidden})[0] for path in (source, target)
]
error = float(np.abs(outputs[0] - outputs[1]).max())
print(f"largest difference {error:.1e} between outputs as large as {np.abs(outputs[0]).max():.1f}")
assert error < 1e-3

# %% [markdown]
# The result also runs without a file, by the names of its inputs:

# %%
again = result.run(hidden=hidden)
assert list(again) == [x]
print({name: array.shape for name, array in again.items()})
folder.cleanup()

# %% [markdown]
# Next: [a first look](first_look.ipynb) reads a report line by line, and
# [inside the e-graph](inside_the_egraph.ipynb) grows an e-graph step by step.
