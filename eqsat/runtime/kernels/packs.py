"""Elements that lie side by side, read and stored several at once: those of one thread, numbered by `k`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from eqsat.language.terms.graph import Node
from eqsat.runtime.kernels.body import Access, KernelBody, entry_name, fits
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, offset
from eqsat.runtime.kernels.expressions.expression import STORED, Expr, UnsupportedError
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.view import WIDEST_ACCESS, View

#: The name that a statement of generated code defines.
_DEFINED = re.compile(r"^\s*const [\w ]+ (\w+) = ", re.MULTILINE)


class PackedBody(KernelBody):
    """A body that records the stores, and puts into packs those of several elements at once."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.stores: list[tuple[str, AffineIndex]] = []
        self._packs: dict[str, str] = {}

    def store(self, name: str, coords: Sequence[AffineIndex], value: Expr) -> None:
        """Write an element of a result, to memory or to the pack that goes there."""
        self.stores.append((name, offset(tuple(coords), self.group.results[name].strides)))
        pack = self._packs.get(name)
        if pack is None:
            super().store(name, coords, value)
        else:
            self.writer.line(f"{pack} = {self.stored(name, value)};")

    def load_packs(self, probe: KernelBody, width: int) -> None:
        """Read the operands of `width` elements that lie side by side, before the loop over k.

        `probe` is a body in which one of them was made; a place that is worked out from other elements is known only
        within the loop.
        """
        within = set(_DEFINED.findall(probe.writer.text()))
        for access in varying(probe.accesses) if width > 1 else []:
            if any(access.offset.reads(name) for name in within):
                continue
            view = self.group.operands[access.value]
            chunk = chunk_of(view, access.offset, width)
            if chunk:
                self._load_pack(access, STORED[view.dtype], chunk, width)

    def _load_pack(self, access: Access, c_type: str, chunk: int, width: int) -> None:
        pointer, place = self.pointer(access.value), access.offset.without("k")
        name = self.writer.name(f"{pointer}_pack")
        places = [self.writer.index(place + part) for part in range(0, width, chunk)]
        loads = ", ".join(f"load<{chunk}>({pointer} + {at})" for at in places)
        self.writer.line(f"const Pack<{c_type}, {chunk}> {name}[] = {{{loads}}};")
        self.hold(access.value, access.coords, _element(name, chunk, width))

    @contextmanager
    def stored_packs(self, stores: Sequence[tuple[str, AffineIndex]], width: int) -> Iterator[None]:
        """Gather the elements that the loop over k stores side by side, and store them after it."""
        stored = []
        for name, place in dict(stores).items() if width > 1 else []:
            view = self.group.results[name]
            chunk = chunk_of(view, place, width)
            if chunk:
                pack = self.writer.name(f"{self.pointer(name)}_pack")
                self.writer.line(f"Pack<{STORED[view.dtype]}, {chunk}> {pack}[{width // chunk}];")
                self._packs[name] = _element(pack, chunk, width)
                stored.append((name, pack, place.without("k"), chunk))
        yield
        for name, pack, place, chunk in stored:
            for part in range(width // chunk):
                at = self.writer.index(place + part * chunk)
                self.writer.line(f"store<{chunk}>({self.pointer(name)} + {at}, {pack}[{part}]);")
        self._packs.clear()

    @contextmanager
    def each(self, width: int) -> Iterator[None]:
        """The loop over k; none where there is one element."""
        if width == 1:
            yield
            return
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int k = 0; k < {width}; ++k)"):
            yield


def _element(pack: str, chunk: int, width: int) -> str:
    return f"{pack}[0].at[k]" if chunk == width else f"{pack}[k / {chunk}].at[k % {chunk}]"


def varying(accesses: Sequence[Access]) -> list[Access]:
    """Those, each once, that every thread makes for each k another."""
    return list({(a.value, a.coords): a for a in accesses if not a.conditional and a.offset.reads("k")}.values())


def chunk_of(view: View, place: AffineIndex, width: int) -> int:
    """The number of elements, of `width` numbered by k, that one access reads; 0 if they are not consecutive."""
    chunk = min(width, WIDEST_ACCESS // view.dtype.itemsize)
    return chunk if fits(view, place, chunk) else 0


def generated(group: Group, node: Node, template: Callable[[Group, Node], KernelSource]) -> KernelSource | None:
    """The kernel that a template makes of a group around one of its nodes; None where it refuses."""
    if any(view.count for view in group.results.values()):
        try:
            return template(group, node)
        except UnsupportedError:
            return None
    body = KernelBody(group)  # there is nothing to make, and nothing to launch
    return body.source(entry_name(group), (0, 1, 1), (1, 1, 1))
