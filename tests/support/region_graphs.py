"""Graphs of one region each: movements, products and windows with what is computed around them."""

import eqsat


def odd_layout():
    """A product whose operands are transposed, with what follows."""
    g = eqsat.Graph("odd_layout")
    x, w = g.input("x", (6, 5, 4)), g.input("w", (3, 4))
    g.output("y", eqsat.tanh(eqsat.transpose(x, perm=(1, 0, 2)) @ eqsat.transpose(w, perm=(1, 0)) + g.input("b", (3,))))
    return g.build()


def joined():
    """A part of one tensor beside another, element by element, then largest along the axis."""
    g = eqsat.Graph("joined")
    x, z = g.input("x", (8, 12)), g.input("z", (8, 5))
    both = eqsat.concat([eqsat.slice(x, starts=(6,), ends=(12,), axes=(1,)), z], axis=1)
    g.output("y", eqsat.reduce_max(eqsat.sigmoid(both), axes=(1,), keepdims=False))
    return g.build()


def shuffled():
    """Channels that are shuffled, and a sum over each of them."""
    g = eqsat.Graph("shuffled")
    x = eqsat.transpose(eqsat.reshape(g.input("x", (1, 12, 4, 3)), shape=(1, 2, 6, 4, 3)), perm=(0, 2, 1, 3, 4))
    g.output("y", eqsat.exp(eqsat.reduce_sum(eqsat.reshape(x, shape=(1, 12, 4, 3)), axes=(2, 3), keepdims=True)))
    return g.build()


def convolved():
    """A convolution in groups with borders, a bias and an activation."""
    g = eqsat.Graph("convolved")
    x, w, b = g.input("x", (1, 4, 9, 8)), g.input("w", (6, 2, 3, 3)), g.input("b", (6,))
    g.output("y", eqsat.sigmoid(eqsat.conv(x, w, b, group=2, pads=(1, 0, 1, 2), strides=(2, 1))))
    return g.build()


def pooled():
    """The largest of windows of what is computed, and what follows."""
    g = eqsat.Graph("pooled")
    x = eqsat.sigmoid(g.input("x", (1, 4, 9, 8)))
    g.output("y", eqsat.exp(eqsat.max_pool(x, kernel=(2, 3), strides=(2, 1))))
    return g.build()


def bordered():
    """A border of a number around what a product reads."""
    g = eqsat.Graph("bordered")
    x = eqsat.pad(g.input("x", ("batch", 9)), pads=(0, 1, 0, 2), value=0.5)
    g.output("y", eqsat.exp(x @ g.input("w", (12, 5))))
    return g.build()


FORMS = {one.__name__: one for one in (odd_layout, joined, shuffled, convolved, pooled, bordered)}
