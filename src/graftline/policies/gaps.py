"""How long it takes until something is used again, learned as one histogram of gaps.

Gaps are counted in a unit of the user's own: the gap that was expected. So gaps of seconds and of hours
fill one histogram, and few of them tell its shape.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final


def edges() -> tuple[float, ...]:
    """Edges of the buckets: 0, then three an octave from 1/16 on."""
    found, octave = [0.0], 0.0625
    while len(found) < EDGES:
        found.extend(octave * step for step in (1.0, 1.26, 1.5874))
        octave *= 2.0
    return tuple(found[:EDGES])


EDGES: Final = 49
LAST: Final = EDGES - 1
AT: Final = edges()


def early_shape() -> list[float]:
    """Chance to be back by each edge while nothing is known: early gaps are frequent, late ones happen."""
    found = []
    for edge in AT:
        far = 1.0 + edge / 3.0
        found.append(1.0 - 1.0 / (far * far * far))
    return found


class Gaps:
    """One histogram.

    Attributes:
        counts: weight of the gaps in each bucket.
        back: of all that is used again, the share that is by each edge.
        area: that share, summed up over time until each edge.
    """

    __slots__ = ("area", "back", "counts")

    def __init__(self) -> None:
        self.counts = [0.0] * LAST
        self.back = early_shape()
        self.area = [0.0] * EDGES

    def add(self, gap: float, weight: float) -> None:
        """One gap."""
        self.counts[min(bucket(gap), LAST - 1)] += weight

    def forget(self, kept: float) -> None:
        """The past counts for less."""
        for place in range(LAST):
            self.counts[place] *= kept

    def refit(self, prior: list[float], strength: float) -> None:
        """Finds the shares anew, as if gaps of the prior's shape and a weight of `strength` had been seen."""
        total, sum_so_far = strength, 0.0
        for count in self.counts:
            total += count
        back, area = [0.0], [0.0]
        for place in range(LAST):
            sum_so_far += self.counts[place] + strength * (prior[place + 1] - prior[place])
            back.append(sum_so_far / total)
            mean = (back[place] + back[place + 1]) / 2.0
            area.append(area[place] + mean * (AT[place + 1] - AT[place]))
        self.back, self.area = back, area

    def back_by(self, age: float) -> float:
        """The share that is used again by an age, straight between the edges."""
        place = bucket(age)
        if place == LAST:
            return 1.0
        share = (age - AT[place]) / (AT[place + 1] - AT[place])
        return self.back[place] + share * (self.back[place + 1] - self.back[place])

    def index(self, chance: float, age: float) -> float:
        """Most returns a unit of time that waiting from `age` on promises, over all times to give up at.

        That is Gittins' index: chance to be back until then, over the time that the room is taken for. Behind
        the last edge the rate falls with the age.

        Args:
            chance: of being used again at all, when nothing of the waiting was done yet; below 1.
            age: time waited so far.
        """
        place = bucket(age)
        if place == LAST:
            waiting = 1.0 - chance * self.back[LAST - 1]
            rate = chance * (self.back[LAST] - self.back[LAST - 1]) / (waiting * (AT[LAST] - AT[LAST - 1]))
            return rate * AT[LAST] / age
        share = (age - AT[place]) / (AT[place + 1] - AT[place])
        back = self.back[place] + share * (self.back[place + 1] - self.back[place])
        area = self.area[place] + (self.back[place] + back) / 2.0 * (age - AT[place])
        best = 0.0
        for end in range(place + 1, EDGES):
            room = (AT[end] - age) - chance * (self.area[end] - area)
            best = max(best, chance * (self.back[end] - back) / room)
        return best


def bucket(gap: float) -> int:
    """Place of the last edge that is not above a gap of 0 or more."""
    return bisect_right(AT, gap) - 1
