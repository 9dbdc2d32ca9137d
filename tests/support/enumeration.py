"""Terms and graphs listed one by one, to compare the generator with: slow, and sharing nothing with it but forms."""

import ast
from collections import defaultdict
from itertools import product

import numpy as np

from eqsat.language.arithmetic.residues import Residues
from eqsat.language.ops import spec


class Listing:
    """Applications, by form and operands; an operand is an input, ("in", i), or an application and which output."""

    def __init__(self, forms, inputs):
        self.forms, self.inputs, self.typed = forms, inputs, {}

    def type(self, term):
        return self.inputs[term[1]] if term[0] == "in" else self.typed[term[0]][1][term[1]]

    def applications(self, environment):
        for index, form in enumerate(self.forms):
            for operands in product(environment, repeat=form.arity):
                if form.inputs_only and any(o[0] != "in" for o in operands):
                    continue
                typed = form.typed([*map(self.type, operands), *(self.inputs[i] for i in form.tail)])
                if typed is not None:
                    self.typed[index, operands] = typed
                    yield index, operands

    def graphs(self, most):
        """For each number of operators, every set of that many applications that holds what its members read."""
        leaves = [("in", i) for i in range(len(self.inputs))]
        level = {frozenset()}
        for _ in range(most):
            grown = set()
            for graph in level:
                made = [(a, p) for a in graph for p in range(len(self.typed[a][1]))]
                grown |= {graph | {a} for a in self.applications(leaves + made) if a not in graph}
            yield grown
            level = grown

    def outputs(self, graphs):
        """The terms that need the whole of their graph."""
        for graph in graphs:
            read = {o[0] for a in graph for o in a[1] if o[0] != "in"}
            last = [a for a in graph if a not in read]
            if len(last) == 1:
                yield from ((last[0], p) for p in range(len(self.typed[last[0]][1])))


def brute_force(forms, inputs, most):
    """How many graphs and terms there are of each size."""
    listing = Listing(forms, inputs)
    return [(len(graphs), len(set(listing.outputs(graphs)))) for graphs in listing.graphs(most)]


def listed_terms(forms, inputs, most):
    """Every term of at most so many operators, evaluated."""
    listing = Listing(forms, inputs)
    listing.terms = [("in", i) for i in range(len(inputs))]
    for graphs in listing.graphs(most):
        listing.terms += sorted(set(listing.outputs(graphs)), key=repr)
    residues, rng, values = Residues(), np.random.default_rng(5), {}
    space = residues.namespace(list(inputs), [])

    def value(term):
        if term not in values:
            if term[0] == "in":
                # Several draws side by side would need batches; elements enough that none agrees by chance serve too.
                values[term] = rng.integers(0, residues.prime, inputs[term[1]].static)
            else:
                _, operands = term[0]
                label, _ = listing.typed[term[0]]
                made = spec(label.op).reference(space, *map(value, operands), **label.attrs)
                values[term] = (made if isinstance(made, tuple) else (made,))[term[1]]
        return values[term]

    def classes():
        found = defaultdict(list)
        for term in listing.terms:
            array = value(term)
            found[array.shape, array.tobytes()].append(term)
        return [c for c in found.values() if len(c) > 1]

    listing.classes = classes
    return listing


class Closure:
    """The terms of a listing, joined where candidates and congruence make them equal."""

    def __init__(self, listing, candidates):
        self.listing, self.parent, self.nodes, self.ids = listing, [], {}, {}
        for term in listing.terms:
            self._term(term)
        rules = []
        for candidate in candidates:
            left, right = (_pattern(side[0]) for side in (candidate.left, candidate.right))
            rules += [(left, right), (right, left)]
        for _ in range(4):
            self._saturate(rules)

    def find(self, term):
        return self._root(self._term(term))

    def _root(self, index):
        while self.parent[index] != index:
            self.parent[index] = self.parent[self.parent[index]]
            index = self.parent[index]
        return index

    def _term(self, term):
        if term not in self.ids:
            if term[0] == "in":
                node = ("in", term[1])
            else:
                label, _ = self.listing.typed[term[0]]
                node = (_head(label), tuple(self._term(o) for o in term[0][1]))
            self.ids[term] = self._node(node)
        return self.ids[term]

    def _node(self, node):
        node = node if node[0] == "in" else (node[0], tuple(map(self._root, node[1])))
        if node not in self.nodes:
            self.nodes[node] = len(self.parent)
            self.parent.append(len(self.parent))
        return self._root(self.nodes[node])

    def _saturate(self, rules):
        by_class = defaultdict(list)
        for node, index in self.nodes.items():
            by_class[self._root(index)].append(node)
        pairs = []
        for left, right in rules:
            for index in list(by_class):
                pairs += [(index, bound, right) for bound in self._matches(left, index, {}, by_class)]
        for index, bound, right in pairs:
            made = self._build(right, bound)
            if made is not None:
                self.parent[self._root(made)] = self._root(index)
        self._congruence()

    def _matches(self, pattern, index, bound, by_class):
        if isinstance(pattern, str):
            if bound.get(pattern, index) == index:
                yield {**bound, pattern: index}
            return
        for node in by_class[index]:
            if node[0] == pattern[0] and len(node[1]) == len(pattern[1]):
                found = [bound]
                for inner, operand in zip(pattern[1], node[1], strict=True):
                    found = [m for b in found for m in self._matches(inner, self._root(operand), b, by_class)]
                yield from found

    def _build(self, pattern, bound):
        """The class of a right side, made only where its operators are applied to what is there."""
        if isinstance(pattern, str):
            return bound.get(pattern)
        operands = [self._build(p, bound) for p in pattern[1]]
        if None in operands:
            return None
        return self._node((pattern[0], tuple(operands)))

    def _congruence(self):
        changed = True
        while changed:
            changed, nodes = False, {}
            for node, index in self.nodes.items():
                whole = node if node[0] == "in" else (node[0], tuple(map(self._root, node[1])))
                other = nodes.setdefault(whole, index)
                if self._root(other) != self._root(index):
                    self.parent[self._root(index)] = self._root(other)
                    changed = True
            self.nodes = nodes


def _head(label):
    defaults = spec(label.op).attrs
    return label.op, tuple((k, repr(v)) for k, v in sorted(label.attrs.items()) if repr(v) != repr(defaults.get(k)))


def _pattern(side):
    def read(tree):
        if isinstance(tree, ast.Name):
            return tree.id
        fields = tuple(sorted((k.arg, repr(ast.literal_eval(k.value))) for k in tree.keywords))
        return (tree.func.id, fields), tuple(map(read, tree.args))

    return read(ast.parse(side, mode="eval").body)
