"""Exact reductions of an extraction program, and the way back from its choices.

Every step keeps the least cost and keeps acyclicity: dropped options have a replacement that only uses goals already
below them, and a goal that is contracted leaves its operands behind in the options that used it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from eqsat.extract.problem.program import Choice, ExtractionProgram, cheapest_trees, closure, components, derivable
from eqsat.system.deadline import spend

MOST_PAIRS = 200
"""An option is compared with at most this many cheaper ones that need something besides, and per operand."""


@dataclass(slots=True)
class Presolved:
    """A smaller program: its cost plus `paid` is the original cost; `parts[o]` are the original options of option o.

    `broken` are the groups of which a goal was contracted, so that the program no longer shows all their nodes.
    """

    original: ExtractionProgram
    program: ExtractionProgram
    parts: list[tuple[int, ...]]
    fixed: list[int]
    paid: float
    broken: set[int]

    def expand(self, choice: Choice) -> Choice:
        """The original choice; it may hold more than the roots use."""
        options = list(self.fixed)
        for option in choice.values():
            options.extend(self.parts[option])
        return {self.original.provides[option]: option for option in options}

    def shrink(self, choice: Choice) -> Choice | None:
        """The choice of the smaller program that expands to this one, where there is one."""
        wanted = set(choice.values())
        smaller: Choice = {}
        for option, parts in enumerate(self.parts):
            if wanted.issuperset(parts):
                smaller.setdefault(self.program.provides[option], option)
        try:
            return closure(self.program, smaller, self.program.roots)
        except KeyError:
            return None


def presolve(
    program: ExtractionProgram,
    without: Iterable[int] = (),
    broken: Iterable[int] = (),
    passes: int = 12,
    stop: Callable[[], bool] = lambda: False,
) -> Presolved:
    """Reduce `program` with the options `without` left out, until nothing changes, `passes` are done or `stop`()."""
    work = _ReducedProgram(program, without, stop)
    work.broken.update(broken)
    steps = work.prune, work.take_free, work.take_only_options, work.contract, work.part_roots, work.drop_dominated
    for _ in range(passes):
        work.changed = False
        for step in steps:
            if not stop():
                spend(len(work.provides))
                step()
        if not work.changed or stop():
            break
    work.prune()
    return work.result()


def compose(first: Presolved, second: Presolved) -> Presolved:
    """The reduction that does `first` and then `second`."""

    def flat(options: Iterable[int]) -> tuple[int, ...]:
        return tuple(part for option in options for part in first.parts[option])

    return Presolved(
        original=first.original,
        program=second.program,
        parts=[flat(parts) for parts in second.parts],
        fixed=first.fixed + list(flat(second.fixed)),
        paid=first.paid + second.paid,
        broken=first.broken | second.broken,
    )


class _ReducedProgram:
    """A program under reduction; an option is gone when its needs are None."""

    def __init__(self, program: ExtractionProgram, without: Iterable[int], stop: Callable[[], bool]) -> None:
        self.original = program
        self.stop = stop
        self._compared: dict[int, tuple[float, tuple[int, ...]]] = {}
        self.provides = list(program.provides)
        self.needs: list[set[int] | None] = [set(needs) for needs in program.needs]
        self.costs = list(program.costs)
        self.parts: list[tuple[int, ...]] = [(option,) for option in range(len(self.provides))]
        self.roots = set(program.roots)
        self.fixed: list[int] = []
        self.paid = 0.0
        self.broken: set[int] = set()
        self.changed = False
        for option in without:
            self.needs[option] = None

    def alive(self) -> list[int]:
        return [option for option, needs in enumerate(self.needs) if needs is not None]

    def by_goal(self) -> list[list[int]]:
        table: list[list[int]] = [[] for _ in range(self.original.goals)]
        for option, needs in enumerate(self.needs):
            if needs is not None:
                table[self.provides[option]].append(option)
        return table

    def users(self) -> list[list[int]]:
        table: list[list[int]] = [[] for _ in range(self.original.goals)]
        for option, needs in enumerate(self.needs):
            for need in needs or ():
                table[need].append(option)
        return table

    def drop(self, option: int) -> None:
        self.needs[option] = None
        self.changed = True

    def view(self) -> tuple[ExtractionProgram, list[int]]:
        """The present state as a program over the original goals, with the options it is made of."""
        options = self.alive()
        program = ExtractionProgram(
            goals=self.original.goals,
            roots=sorted(self.roots),
            provides=[self.provides[option] for option in options],
            needs=[tuple(sorted(self.needs[option] or ())) for option in options],
            costs=[self.costs[option] for option in options],
            groups=self.original.groups,
            natives=self.original.natives,
        )
        return program, options

    def prune(self) -> None:
        """Drop options that need themselves, cannot be provided, or are reached from no root."""
        for option in self.alive():
            if self.provides[option] in (self.needs[option] or ()):
                self.drop(option)
        program, options = self.view()
        can = derivable(program)
        for index, option in enumerate(options):
            if not all(can[need] for need in program.needs[index]):
                self.drop(option)
        table = self.by_goal()
        reached, stack = set(self.roots), list(self.roots)
        while stack:
            for option in table[stack.pop()]:
                for need in (self.needs[option] or set()) - reached:
                    reached.add(need)
                    stack.append(need)
        for option in self.alive():
            if self.provides[option] not in reached:
                self.drop(option)

    def take_free(self) -> None:
        """Take every goal with an option that costs and needs nothing, and forget it."""
        users, table = self.users(), self.by_goal()
        ready = [o for o in self.alive() if not self.needs[o] and self.costs[o] == 0]
        while ready:
            option = ready.pop()
            if self.needs[option] is None:
                continue
            goal = self.provides[option]
            self._forget(goal, option, table)
            for user in users[goal]:
                needs = self.needs[user]
                if needs is not None:
                    needs.discard(goal)
                    if not needs and self.costs[user] == 0:
                        ready.append(user)

    def _forget(self, goal: int, option: int, table: list[list[int]]) -> None:
        """`option` provides `goal` in every solution worth having; its cost is paid."""
        self.fixed.extend(self.parts[option])
        self.paid += self.costs[option]
        self.roots.discard(goal)
        self._break(option)
        for other in table[goal]:
            self.drop(other)

    def _break(self, option: int) -> None:
        groups = self.original.groups
        self.broken.update(groups[self.original.provides[part]] for part in self.parts[option])

    def take_only_options(self) -> None:
        """Take the only option of a root; the goals it needs become roots."""
        users, table = self.users(), self.by_goal()
        ready = sorted(self.roots)
        while ready:
            root = ready.pop()
            if len(table[root]) != 1:
                continue
            option = table[root][0]
            needs = self.needs[option] or set()
            self._forget(root, option, table)
            table[root] = []
            for need in needs - self.roots:
                self.roots.add(need)
                ready.append(need)
            self._substitute(root, needs, users)

    def _substitute(self, goal: int, needs: set[int], users: list[list[int]]) -> None:
        """Options that used `goal` use `needs` instead."""
        for user in users[goal]:
            mine = self.needs[user]
            if mine is None or goal not in mine:
                continue
            mine.discard(goal)
            for need in needs - mine:
                mine.add(need)
                users[need].append(user)
            if self.provides[user] in mine:
                self.drop(user)

    def contract(self) -> None:
        """Merge goals with one option, or with one user that needs nothing else, into their users."""
        users, table = self.users(), self.by_goal()
        for goal in range(self.original.goals):
            if goal in self.roots or not table[goal]:
                continue
            mine = [u for u in set(users[goal]) if goal in (self.needs[u] or ())]
            options = [o for o in table[goal] if self.needs[o] is not None]
            if len(options) == 1:
                self._merge_only_option(goal, options[0], sorted(mine), users)
            elif len(mine) == 1 and self.needs[mine[0]] == {goal}:
                self._merge_only_user(options, mine[0], table, users)

    def _merge_only_option(self, goal: int, option: int, mine: list[int], users: list[list[int]]) -> None:
        cost, needs = self.costs[option], self.needs[option] or set()
        if len(mine) > 1 and (cost > 0 or len(needs) * len(mine) > len(needs) + len(mine) + 8):
            return
        for user in mine:
            self.parts[user] += self.parts[option]
            self.costs[user] += cost
        self._break(option)
        self.drop(option)
        self._substitute(goal, needs, users)

    def _merge_only_user(self, options: list[int], user: int, table: list[list[int]], users: list[list[int]]) -> None:
        above = self.provides[user]
        self._break(user)
        self.drop(user)
        for option in options:
            self._break(option)
            if above in (self.needs[option] or ()):
                self.drop(option)
                continue
            self.provides[option] = above
            self.costs[option] += self.costs[user]
            self.parts[option] = self.parts[user] + self.parts[option]
            table[above].append(option)

    def part_roots(self) -> None:
        """Forget that an option needs a root, where that need cannot be part of a cycle: a root is there anyway."""
        program, options = self.view()
        component = components(program.successors())
        for option in options:
            mine = component[self.provides[option]]
            needs = self.needs[option] or set()
            loose = {need for need in needs & self.roots if component[need] != mine}
            if loose:
                needs -= loose
                self.changed = True

    def drop_dominated(self) -> None:
        """Drop options with a stand-in, of goals whose options changed since they were last compared."""
        program, options = self.view()
        fresh = []
        for goal, members in enumerate(program.by_goal):
            now = {options[index]: (self.costs[options[index]], program.needs[index]) for index in members}
            if len(members) > 1 and any(self._compared.get(option) != seen for option, seen in now.items()):
                fresh.append(goal)
            self._compared.update(now)
        if not fresh:
            return
        for index in Dominance(program).dominated(fresh, self.stop):
            self.drop(options[index])

    def result(self) -> Presolved:
        program, options = self.view()
        used = {program.provides[o] for o in range(len(options))} | self.roots
        number = {goal: index for index, goal in enumerate(sorted(used))}
        smaller = ExtractionProgram(
            goals=len(number),
            roots=[number[root] for root in program.roots],
            provides=[number[goal] for goal in program.provides],
            needs=[tuple(sorted(number[need] for need in needs)) for needs in program.needs],
            costs=program.costs,
            groups=[self.original.groups[goal] for goal in sorted(used)],
            natives=0,
        )
        parts = [self.parts[option] for option in options]
        return Presolved(self.original, smaller, parts, self.fixed, self.paid, self.broken)


class Dominance:
    """Finds dominated options of a program.

    An option dominates another of the same goal if it costs no more together with the cheapest trees of the goals that
    it needs besides; none of those may be able to reach the goal, or the stand-in could close a cycle.
    """

    def __init__(self, program: ExtractionProgram) -> None:
        self.program = program
        self.needs = [frozenset(needs) for needs in program.needs]
        self.component = components(program.successors())
        _, self.trees = cheapest_trees(program, program.costs)

    def dominated(self, goals: Iterable[int], stop: Callable[[], bool]) -> Iterator[int]:
        """The dominated options of `goals`; fewer where `stop` says so."""
        for goal in goals:
            if stop():
                return
            spend(1 + len(self.program.by_goal[goal]))
            if len(self.program.by_goal[goal]) > 1:
                yield from self._among(self.program.by_goal[goal])

    def _among(self, members: Sequence[int]) -> Iterator[int]:
        costs = self.program.costs
        alike: dict[int, list[int]] = defaultdict(list)  # options kept, by their first operand
        dearer: list[tuple[float, int]] = []  # options kept, by their cost with their cheapest operand's tree
        for option in sorted(members, key=lambda o: (costs[o], len(self.needs[o]), o)):
            if self._contains_one(option, alike) or self._pays_for_one(option, dearer):
                yield option
                continue
            needs = self.program.needs[option]
            alike[needs[0] if needs else -1].append(option)
            if needs:
                entry = (costs[option] + min(self.trees[need] for need in needs), option)
                dearer.insert(bisect_right(dearer, entry), entry)

    def _contains_one(self, option: int, alike: dict[int, list[int]]) -> bool:
        """Return whether the needs of some cheaper option are among those of this one."""
        if -1 in alike:
            return True
        mine = self.needs[option]
        for need in self.program.needs[option]:
            if any(self.needs[other] <= mine for other in alike.get(need, ())[:MOST_PAIRS]):
                return True
        return False

    def _pays_for_one(self, option: int, dearer: list[tuple[float, int]]) -> bool:
        """Return whether some cheaper option costs no more even with its additional needs."""
        cost, mine = self.program.costs[option], self.needs[option]
        place = self.component[self.program.provides[option]]
        for least, other in dearer[:MOST_PAIRS]:
            if least > cost:
                return False
            missing = self.needs[other] - mine
            if self.program.costs[other] + sum(self.trees[need] for need in sorted(missing)) <= cost and all(
                self.component[need] != place for need in missing
            ):
                return True
        return False
