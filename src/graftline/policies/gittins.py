"""What promises the fewest returns for the room that it takes leaves first.

The rank is Gittins' index: over all times to give up at, the best ratio of the chance to be used again
until then and the room-time spent until then. Of users who come back independently of each other, at one
price for room, keeping exactly what has an index above the price is optimal (Gittins: "Bandit processes and
dynamic allocation indices", JRSS B 41(2), 1979; Whittle: "Restless bandits", J. Applied Probability 25A,
1988). In place of hits it counts what LHD calls hit density (Beckmann, Chen, Cidon: "LHD: improving cache
hit rate by maximizing hit density", NSDI 2018), over the best horizon, of sessions and not of objects.

Two things are learned, from what sessions do, not from what the cache happens to hold:

- **chance** that a session goes on, and share of its path that it uses again then: of those at the same
  turn that grew by as many pages (to a power of two) so many did; where little is known, of those at the
  same turn, of all. What a session passed often before it uses again more surely than what is new to it: a
  branch that was tried, a prompt of a side task.
- **gaps** in a unit of the session's own: its mean gap, drawn to that of others at the same turn while it
  is new, shifted by the length of its last answer as far as such lengths told gaps before.

What several sessions passed is shared: its own gaps count. What no session refers to any more is
superseded, and has the chance of its kind, by component (`fates`): the path that a session left for a side
task comes back, that of the side task does not. Ranks change as time goes by, so they are found anew time and
again (rule P-7).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Final

from graftline.components import ComponentSpec
from graftline.policies.base import EvictionPolicy, Passage, Usage
from graftline.policies.courses import KEPT, Chance, Course, Mean
from graftline.policies.fates import KEPT_SHARE, SHARED, Fates, kind_of
from graftline.policies.gaps import Gaps, early_shape

TURN_ENDS: Final = (1, 2, 3, 5, 9, 20, 60)
"""Last turn of each class of turns; one more class follows."""
TURNS: Final = len(TURN_ENDS) + 1
GROWTHS: Final = 32
FOLLOWED: Final = 10.0
"""So many gaps make a mean; more forget the oldest."""
EARLY_CHANCE, SHARED_CHANCE = 0.5, 0.99
"""Of what nobody passed yet, of what several sessions did that go on."""
CHANCE_STRENGTH, GAPS_STRENGTH = 5.0, 60.0
"""What is believed beforehand counts as much as so many sessions of mean weight."""
SLOPE_KEPT: Final = 0.999
FAR_GAP: Final = 4.0
GAP_MIN_S: Final = 1e-3
REFITS: Final = (8.0, 64.0)
"""Registrations between two refits: least and most, but for very many sessions."""
WEIGHTS_MAX: Final = 2000.0


class Gittins(EvictionPolicy):
    """Returns that are to be expected for the room taken."""

    name = "gittins"
    ages = True

    def __init__(self) -> None:
        self.now_s = 0.0
        self.courses: dict[int, Course] = {}
        self.numbers = 0
        self.everyone = Chance()
        self.by_turn = [Chance() for _ in range(TURNS)]
        self.by_growth = [Chance() for _ in range(TURNS * GROWTHS)]
        self.private_gaps, self.superseded_gaps, self.shared_gaps = Gaps(), Gaps(), Gaps()
        self.mean_by_turn = [Mean() for _ in range(TURNS)]
        self.mean_of_all, self.mean_of_shared = Mean(), Mean()
        self.covariance = self.variance = 0.0
        self.weights = self.weight_sum = 0.0
        self.until_refit = REFITS[0]
        self.registrations = 0.0
        self.passing = Course(0)
        self.passing_chance = self.passing_share = 0.5
        self.passing_shorter = False
        self.fates: list[Fates] = []
        self.touched: list[list[float]] = []
        self.holds_state: list[bool] = []
        self.fit()

    def bind(self, specs: Sequence[ComponentSpec]) -> None:
        """Which components keep states; the pages of others are worth the same, one as the other."""
        self.holds_state = [spec.rule.holds_state for spec in specs]
        self.touched = [[0.0, 0.0] for _ in specs]
        self.fates = [Fates() for _ in specs]

    # -- time and sessions ---------------------------------------------------------------------------

    def set_time(self, now_s: float) -> None:
        """Ages are counted up to this moment."""
        self.now_s = now_s

    def registered(self, passage: Passage) -> None:
        """A session came back, or came first: its chance, its gaps, and what is expected now."""
        course = self.courses.get(passage.session)
        if course is None:
            self.numbers += 1
            course = self.courses[passage.session] = Course(self.numbers)
        if course.turns:
            self.came_back(course, passage)
        before = course.pages
        self.passing_shorter = passage.pages < before
        course.turns += 1
        course.turn = turn_class(course.turns)
        course.cell = course.turn * GROWTHS + octave(passage.pages - before)
        course.last_s, course.pages = self.now_s, passage.pages
        course.answer = passage.answer_pages
        course.scale_s = self.expected_s(course)
        course.weight = sqrt(float(max(passage.pages, 1)))
        self.weigh(course.weight)
        self.passing = course
        self.passing_chance, self.passing_share = self.chance_of(course), self.share_of(course)
        self.registrations += 1.0
        self.until_refit -= 1.0

    def came_back(self, course: Course, passage: Passage) -> None:
        """Counts the return, for the share of the former path that is used again."""
        gap_s = max(self.now_s - course.last_s, GAP_MIN_S)
        used = min(course.pages, passage.pages) if passage.kept_pages is None else passage.kept_pages
        kept = course.weight * (used / course.pages) if course.pages else 0.0
        for chance in self.chances_of(course):
            chance.returned += course.weight
            chance.kept += kept
            chance.seen += course.weight
        self.private_gaps.add(gap_s / course.scale_s, kept)
        if course.gaps.count:
            mean_s = max(course.gaps.root * course.gaps.root, GAP_MIN_S)
            off_s = min(max(gap_s - mean_s, -FAR_GAP * mean_s), FAR_GAP * mean_s)
            longer = course.answer - course.answers
            self.covariance = SLOPE_KEPT * self.covariance + off_s * longer / mean_s
            self.variance = SLOPE_KEPT * self.variance + longer * longer / mean_s
        root = sqrt(gap_s)
        course.gaps.add(root, FOLLOWED)
        course.answers += (course.answer - course.answers) / course.gaps.count
        self.mean_by_turn[course.turn].add(root, FOLLOWED * FOLLOWED)
        self.mean_of_all.add(root, FOLLOWED * FOLLOWED)

    def closed(self, session: int) -> None:
        """A session ended: it will not be back."""
        course = self.courses.pop(session, None)
        if course is not None:
            gone = course.weight * self.private_gaps.back_by(self.waited(course) / course.scale_s)
            for chance in self.chances_of(course):
                chance.seen += gone

    def passed(self, usage: Usage) -> None:
        """A run lies on the path that was registered just now; `usage.sessions` is still that of before."""
        fates, kind, pages = self.fates[usage.component], kind_in(usage), pages_of(usage)
        is_left = usage.sessions == 0
        if is_left and (usage.is_found or not usage.passes):
            fates.count_left(kind, -pages)
        elif is_left:
            fates.count_return(kind, pages)
        elif usage.passes and usage.parties <= 1:
            fates.count_kept(kind, pages, is_kept=True)
        if usage.passes and not (is_left and usage.is_found):
            self.learn_gap(usage)
        if usage.session != self.passing.number:
            usage.parties += 1
            usage.session = self.passing.number
        usage.passes += 1
        usage.since_s = self.now_s
        usage.kind, usage.is_found = kind_of(usage.passes, self.passing_shorter), False
        usage.chance, usage.share = self.passing_chance, self.passing_share
        usage.scale_s = self.passing.scale_s

    def found(self, usage: Usage) -> None:
        """A lease needs the run; when no session refers to it, its wait is over and the next one begins."""
        if usage.sessions == 0 and usage.uses:
            fates, kind, pages = self.fates[usage.component], kind_in(usage), pages_of(usage)
            fates.count_return(kind, pages)
            fates.count_left(kind, pages)  # until it is passed
            if usage.passes:
                self.learn_gap(usage)
            usage.since_s = self.now_s
        usage.is_found = True

    def left(self, usage: Usage) -> None:
        """No session refers to the run any more: whoever did passed it by, unless it was found before."""
        if usage.passes:
            fates, kind, pages = self.fates[usage.component], kind_in(usage), pages_of(usage)
            if usage.parties <= 1:
                fates.count_kept(kind, pages, usage.is_found)
            fates.count_left(kind, pages)
            usage.is_found = False

    def learn_gap(self, usage: Usage) -> None:
        """Learns how long it took until a run was used again."""
        gap_s = max(self.now_s - usage.since_s, GAP_MIN_S)
        weight = sqrt(pages_of(usage))
        if usage.parties > 1:
            self.shared_gaps.add(gap_s / self.shared_scale_s(usage), weight)
            self.mean_of_shared.add(sqrt(gap_s), FOLLOWED * FOLLOWED)
        elif usage.sessions == 0:
            self.superseded_gaps.add(gap_s / usage.scale_s, weight)
        usage.gaps = min(usage.gaps + 1.0, FOLLOWED)
        usage.gap_root += (sqrt(gap_s) - usage.gap_root) / usage.gaps

    def settled(self) -> None:
        """All runs of the path were told: from time to time, what was learned is put together anew."""
        if self.until_refit <= 0.0:
            self.refit()
        for fates, (count, pages) in zip(self.fates, self.touched, strict=True):
            fates.settle(CHANCE_STRENGTH * (pages / count if count else 1.0))

    # -- ranks -----------------------------------------------------------------------------------------

    def touch(self, usage: Usage, gap_ticks: int, gap_s: float) -> None:
        """Counts nodes and their pages, for the mean."""
        touched = self.touched[usage.component]
        touched[0] += 1.0
        touched[1] += float(usage.end_page - usage.start_page)
        if touched[0] == 4096.0:
            touched[0] /= 2.0
            touched[1] /= 2.0
        if usage.uses == 1 and not usage.passes and not usage.sessions:
            fates, kind, pages = self.fates[usage.component], kind_in(usage), pages_of(usage)
            fates.count_left(kind, pages)  # until it is passed

    def rank(self, usage: Usage) -> float:
        """Returns a second of room, from now on."""
        return self.promise(usage) * self.worth(usage)

    def promise(self, usage: Usage) -> float:
        """Chance of being used again, over the time that the room is taken."""
        gaps, scale_s, since_s = self.private_gaps, usage.scale_s, usage.since_s
        if not usage.passes:  # nobody told whose it is
            scale_s, since_s = self.scale_of_all(), usage.last_s
        elif usage.parties > 1:
            gaps, scale_s = self.shared_gaps, self.shared_scale_s(usage)
        elif not usage.sessions:
            gaps = self.superseded_gaps
        chance = self.chance_in(usage)
        return gaps.index(chance, max(self.now_s - since_s, 0.0) / scale_s) / scale_s

    def chance_in(self, usage: Usage) -> float:
        """That a run is used again at all."""
        fates = self.fates[usage.component]
        if not usage.sessions:
            return fates.left_chance(kind_in(usage))
        if not usage.passes:
            return EARLY_CHANCE
        if usage.parties > 1:
            return SHARED_CHANCE
        return usage.chance * min(usage.share * fates.kept_factor(kind_in(usage)), 1.0)

    def worth(self, usage: Usage) -> float:
        """Work at stake, from 0 to 2, 1 for the mean: what is computed again when a state is gone."""
        if not self.holds_state[usage.component]:
            return 1.0
        count, pages = self.touched[usage.component]
        mine = float(usage.end_page - usage.start_page)
        return 2.0 * mine / (mine + pages / count) if pages else 1.0

    # -- what is expected --------------------------------------------------------------------------------

    def chances_of(self, course: Course) -> tuple[Chance, Chance, Chance]:
        """Where a session is counted."""
        return self.everyone, self.by_turn[course.turn], self.by_growth[course.cell]

    def chance_of(self, course: Course) -> float:
        """That a session goes on: of its like, of those at its turn, of all."""
        strength, found = self.strength(), 0.5
        for chance in self.chances_of(course):
            found = chance.value(found, strength)
        return found

    def share_of(self, course: Course) -> float:
        """How much of its path a session uses again that goes on."""
        strength, found = self.strength(), KEPT_SHARE
        for chance in self.chances_of(course):
            found = chance.share(found, strength)
        return found

    def expected_s(self, course: Course) -> float:
        """The gap that is expected of a session from now on."""
        of_turn = self.mean_by_turn[course.turn]
        of_others = of_turn.root if of_turn.count else self.root_of_all()
        root = (course.gaps.root * course.gaps.count + of_others) / (course.gaps.count + 1.0)
        mean_s = root * root
        if self.variance > 0.0 and course.gaps.count:
            slope = max(self.covariance / self.variance, 0.0)
            mean_s = max(mean_s + slope * (course.answer - course.answers), 0.25 * mean_s)
        return max(mean_s, GAP_MIN_S)

    def shared_scale_s(self, usage: Usage) -> float:
        """The gap that is expected of what several sessions pass."""
        of_others = self.mean_of_shared.root if self.mean_of_shared.count else self.root_of_all()
        root = (usage.gap_root * usage.gaps + of_others) / (usage.gaps + 1.0)
        return max(root * root, GAP_MIN_S)

    def root_of_all(self) -> float:
        """Of any session's gap."""
        return self.mean_of_all.root if self.mean_of_all.count else 1.0

    def scale_of_all(self) -> float:
        """The gap that is expected of anybody."""
        return max(self.root_of_all() * self.root_of_all(), GAP_MIN_S)

    def waited(self, course: Course) -> float:
        """Time since a session's last request, in seconds."""
        return max(self.now_s - course.last_s, 0.0)

    # -- putting together --------------------------------------------------------------------------------

    def weigh(self, weight: float) -> None:
        """The mean weight of a session."""
        self.weights += 1.0
        self.weight_sum += weight
        if self.weights > WEIGHTS_MAX:
            self.weights /= 2.0
            self.weight_sum /= 2.0

    def strength(self) -> float:
        """Weight of what is believed of a chance beforehand."""
        return CHANCE_STRENGTH * self.mean_weight()

    def mean_weight(self) -> float:
        """Of the sessions of late; 1 before the first."""
        return self.weight_sum / self.weights if self.weights else 1.0

    def refit(self) -> None:
        """Old counts shrink, those who should be back are counted. Cost: O(sessions), every so often."""
        for chance in (self.everyone, *self.by_turn, *self.by_growth):
            chance.forget()
        for fates in self.fates:
            fates.forget()
        for course in self.courses.values():
            due = course.weight * self.private_gaps.back_by(self.waited(course) / course.scale_s)
            for chance in self.chances_of(course):
                chance.pending += due
        for gaps in (self.private_gaps, self.superseded_gaps, self.shared_gaps):
            gaps.forget(KEPT)
        self.fit()
        usual = min(max(self.registrations / 4.0, REFITS[0]), REFITS[1])
        self.until_refit = max(usual, float(len(self.courses) // 4))

    def fit(self) -> None:
        """The shapes of the gaps."""
        strength = GAPS_STRENGTH * self.mean_weight()
        self.private_gaps.refit(early_shape(), strength)
        self.superseded_gaps.refit(self.private_gaps.back, strength)
        self.shared_gaps.refit(self.private_gaps.back, strength)


def turn_class(turns: int) -> int:
    """Class of a number of requests, at least 1."""
    return sum(turns > end for end in TURN_ENDS)


def pages_of(usage: Usage) -> float:
    """Pages of a run's node."""
    return float(usage.end_page - usage.start_page)


def kind_in(usage: Usage) -> int:
    """Place of a run's counts."""
    return SHARED if usage.parties > 1 else usage.kind


def octave(pages: int) -> int:
    """0 for none, then one more for each power of two reached."""
    return min(max(pages, 0).bit_length(), GROWTHS - 1)
