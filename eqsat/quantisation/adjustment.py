"""Numbers for weights that are chosen together, so that products with data move less than by rounding each alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.language.ops import OPS
from eqsat.language.terms import BlockScale, Node, Scale

Array = np.ndarray[Any, np.dtype[Any]]

#: Rows of the operand that the moments of a batch are taken from, at most.
MOST_ROWS = 4096
#: Terms in the sums of a product beyond which its weights are rounded one by one: moments grow with their square.
MOST_TERMS = 4608
#: The share of the mean square of an operand that is added to every square: few batches know few directions.
_DAMPING = 0.01
#: Terms for each row of data beyond which data say too little to choose numbers by.
_LEAST_ROWS = 8
#: Terms whose misses are passed on to all later ones at once, and those among them to the rest of these.
_BLOCK, _INNER = 128, 16


@dataclass
class Moments:
    """Sums of the products of every two terms that one product reads, and of the terms, over rows of its operand.

    `squares` has the shape (groups, terms, terms), `sums` (groups, terms).
    """

    squares: Array
    sums: Array
    rows: int = 0

    @staticmethod
    def of(groups: int, terms: int) -> Moments:
        """The moments of no rows."""
        return Moments(np.zeros((groups, terms, terms)), np.zeros((groups, terms)))

    def see(self, rows: Array) -> None:
        """Add rows of shape (rows, groups, terms)."""
        by_group = rows.transpose(1, 0, 2).astype(np.float64)
        self.squares += by_group.transpose(0, 2, 1) @ by_group
        self.sums += by_group.sum(axis=1)
        self.rows += len(rows)

    @property
    def mean(self) -> Array:
        """The mean of each term."""
        found: Array = self.sums / max(self.rows, 1)
        return found

    def centred(self) -> Array:
        """Mean products of what the terms differ from their means."""
        found: Array = self.squares / max(self.rows, 1) - self.mean[:, :, None] * self.mean[:, None, :]
        return found

    def whole(self) -> Array:
        """Mean products of the terms themselves."""
        return self.squares / max(self.rows, 1)


@dataclass(frozen=True)
class Weights:
    """Constant weights of a product: their array, and how it is laid out.

    `node` is the product, with its attributes; weights of a convolution have their outputs along the first axis, those
    of a product of matrices along the second, or the first where it is transposed.
    With `shifts` the product has a bias, which may make up for what rounding moves its mean by.
    """

    node: Node
    array: Array
    scale: Scale | BlockScale
    shifts: bool = False

    @property
    def groups(self) -> int:
        """The groups of outputs that read the same terms."""
        return int(self.node.attrs.get("group", 1)) if self._is_windowed else 1

    @property
    def terms(self) -> int:
        """The terms that each output sums."""
        return int(self.rows(self.array).shape[-1])

    @property
    def is_adjustable(self) -> bool:
        """True where the weights are a matrix or filters of few enough terms, by one step an output or a block."""
        outputs = 0 if self._is_windowed or self.node.attrs.get("trans_b") else 1
        symmetric = isinstance(self.scale, BlockScale) or not any(self.scale.zeros)
        known = self.scale.axis == outputs and symmetric
        return known and (self._is_windowed or self.array.ndim == 2) and self.terms <= MOST_TERMS

    def rows(self, array: Array) -> Array:
        """An array of the weights' shape with an output in each row."""
        if self._is_windowed:
            return array.reshape(len(array), -1)
        return array if self.node.attrs.get("trans_b") else array.T

    def back(self, rows: Array) -> Array:
        """Rows of outputs in the weights' own shape."""
        return (rows if self._is_windowed or self.node.attrs.get("trans_b") else rows.T).reshape(self.array.shape)

    @property
    def _is_windowed(self) -> bool:
        return OPS[self.node.op].windowed

    def read(self, operand: Array) -> Array:
        """Rows of the terms that the product reads of an operand, of shape (rows, groups, terms), some of them."""
        if self._is_windowed:
            return _patches(operand, self.node, self.array.shape[2:], self.groups)
        if self.node.attrs.get("trans_a"):
            operand = operand.T
        flat = operand.reshape(-1, 1, operand.shape[-1])
        return flat[_some(len(flat))]


def adjusted(weights: Weights, calibrate: Moments, tighten: Moments) -> Scale | BlockScale:
    """The scale of weights with numbers by which products move least on data; as it was where those are no better.

    Numbers are fixed one column at a time, and what each one misses is made up for by those that follow (E. Frantar et
    al., GPTQ, ICLR 2023, after B. Hassibi and D. Stork, 1993), by the moments `calibrate`. Where the product has a
    bias, it takes what the mean of the products moves by (M. Nagel et al., Data-free quantization, ICCV 2019), and only
    the rest counts. Other data decide whether the numbers are better than the nearest ones: `tighten`.
    """
    plain = weights.scale.quantised(weights.array)
    candidates: list[tuple[Array, Array | None]] = [(plain, None)]
    if weights.shifts:
        candidates.append((plain, _shift(weights, plain, calibrate.mean)))
    if _LEAST_ROWS * calibrate.rows >= weights.terms:
        chosen = _chosen(weights, calibrate)
        candidates.append((chosen, _shift(weights, chosen, calibrate.mean) if weights.shifts else None))
    losses = [_loss(weights, numbers, moved, tighten) for numbers, moved in candidates]
    numbers, moved = candidates[int(np.argmin(losses))]
    if numbers is plain and moved is None:
        return weights.scale
    return weights.scale.adjusted(numbers, moved)


def _chosen(weights: Weights, moments: Moments) -> Array:
    """Numbers that are fixed column by column, those of the terms with the largest squares first."""
    wanted = weights.rows(weights.array).astype(np.float64)
    steps, zeros = (
        weights.rows(np.broadcast_to(one, weights.array.shape)) for one in weights.scale.spread(weights.array.shape)
    )
    squares = moments.centred() if weights.shifts else moments.whole()
    out = np.empty(wanted.shape)
    size = len(wanted) // weights.groups
    for group in range(weights.groups):
        rows = slice(group * size, (group + 1) * size)
        bounds = weights.scale.least, weights.scale.most
        out[rows] = _fixed(wanted[rows], steps[rows], zeros[rows], squares[group], bounds)
    return np.asarray(weights.back(out).astype(weights.scale.dtype.numpy))


def _fixed(wanted: Array, steps: Array, zeros: Array, squares: Array, bounds: tuple[int, int]) -> Array:
    """Whole numbers for a matrix with the steps of its elements, one output in a row, given the squares of its terms.

    Where no term is other than 0, the nearest numbers.
    """
    terms = len(squares)
    order = np.argsort(-np.diag(squares), kind="stable")
    squares = squares[np.ix_(order, order)]
    mean = float(np.trace(squares)) / terms
    if not mean > 0:
        return np.asarray(np.clip(np.rint(wanted / steps) + zeros, *bounds))
    upper = _inverse_root(squares + _DAMPING * mean * np.eye(terms))
    # A term in each row, so that all that is read and written lies together.
    left, unit = np.ascontiguousarray(wanted.T[order]), np.ascontiguousarray(steps.T[order], np.float64)
    zero, numbers = zeros.T[order], np.empty_like(left)
    for begin in range(0, terms, _BLOCK):
        end = min(begin + _BLOCK, terms)
        missed = np.empty((end - begin, left.shape[1]))
        for inner in range(begin, end, _INNER):
            stop = min(inner + _INNER, end)
            for term in range(inner, stop):
                numbers[term] = np.clip(np.rint(left[term] / unit[term]) + zero[term], *bounds)
                missed[term - begin] = (left[term] - (numbers[term] - zero[term]) * unit[term]) / upper[term, term]
                left[term + 1 : stop] -= upper[term, term + 1 : stop, None] * missed[term - begin]
            left[stop:end] -= upper[inner:stop, stop:end].T @ missed[inner - begin : stop - begin]
        left[end:] -= upper[begin:end, end:].T @ missed
    found = np.empty(wanted.shape)
    found[:, order] = numbers.T
    return found


def _inverse_root(squares: Array) -> Array:
    """The upper triangular matrix U with Uᵀ · U the inverse of a positive definite matrix."""
    from scipy.linalg import lapack

    # Backwards, its Cholesky factor is R with squares = R · Rᵀ, R upper triangular, and U is the inverse of R.
    root = np.linalg.cholesky(squares[::-1, ::-1])[::-1, ::-1]
    inverse, failed = lapack.dtrtri(root, lower=0)
    if failed:
        raise np.linalg.LinAlgError("a singular root of moments")
    return np.asarray(inverse)


def _missed(weights: Weights, numbers: Array) -> Array:
    """The weights less what their numbers stand for, in groups of outputs by terms."""
    missed = weights.array.astype(np.float64) - weights.scale.restored(numbers).astype(np.float64)
    rows = weights.rows(missed)
    found: Array = rows.reshape(weights.groups, -1, rows.shape[-1])
    return found


def _shift(weights: Weights, numbers: Array, mean: Array) -> Array:
    """The change of the mean of each output by rounding, which its bias makes up for."""
    shift: Array = np.einsum("got,gt->go", _missed(weights, numbers), mean).reshape(-1)
    return shift * float(weights.node.attrs.get("alpha", 1.0))


def _loss(weights: Weights, numbers: Array, shift: Array | None, moments: Moments) -> float:
    """The mean square of what products move by, given what the bias makes up for."""
    missed = _missed(weights, numbers)
    alpha = float(weights.node.attrs.get("alpha", 1.0))
    squares = np.einsum("got,gts,gos->go", missed, moments.whole(), missed, optimize=True).reshape(-1) * alpha**2
    if shift is None:
        return float(np.sum(squares))
    means = np.einsum("got,gt->go", missed, moments.mean).reshape(-1) * alpha
    return float(np.sum(squares - 2 * shift * means + shift**2))


def _patches(operand: Array, node: Node, kernel: Sequence[int], groups: int) -> Array:
    """Some of the windows that a convolution reads, each with its terms in groups of channels."""
    spatial = len(kernel)
    strides = tuple(node.attrs.get("strides") or (1,) * spatial)
    dilations = tuple(node.attrs.get("dilations") or (1,) * spatial)
    pads = tuple(node.attrs.get("pads") or (0,) * (2 * spatial))
    around = [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:], strict=True)]
    padded = np.pad(operand, around)
    reach = tuple((size - 1) * gap + 1 for size, gap in zip(kernel, dilations, strict=True))
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=tuple(range(2, 2 + spatial)))
    steps = tuple(slice(None, None, stride) for stride in strides)
    gaps = tuple(slice(None, None, gap) for gap in dilations)
    windows = windows[(slice(None), slice(None), *steps, *gaps)]
    places = windows.shape[2 : 2 + spatial]
    every = np.array(np.unravel_index(_some(len(operand) * int(np.prod(places))), (len(operand), *places)))
    picked = windows[(every[0], slice(None), *every[1:])]
    return picked.reshape(len(picked), groups, -1)


def _some(count: int) -> Array:
    """Indices below a count, at most as many as count, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_ROWS)).round().astype(np.int64))
