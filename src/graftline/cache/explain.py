"""Why a boundary is where it is: each component's vote along the path, and what became of the pages.

Put together from a match and a history at the time of the match, before the request changes the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from graftline.cache.history import NEVER, History, Moment, Stretch, stretches
from graftline.cache.shortfall import Shortfall
from graftline.components import ComponentSpec
from graftline.plan import Match, Tier

SCHEMA = "graftline.explain/1"


@dataclass(frozen=True, slots=True)
class ComponentStory:
    """One component along a prompt, in pages.

    Attributes:
        component: its name.
        own_pages: deepest boundary that it accepts by itself.
        without_pages: the boundary that the others would have agreed on without it (rule M-4).
        needed_first_page: first page that it needs for a boundary at the end of what was ever known;
            the last one is the page before that boundary.
        stretches: what became of its values on all pages that were ever known.
    """

    component: str
    own_pages: int
    without_pages: int
    needed_first_page: int
    stretches: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a request reused what it did; boundaries in pages.

    Attributes:
        request: which.
        page_tokens: tokens a page.
        prompt_tokens: length of the prompt.
        limit_pages: most that it may reuse (rule M-3).
        boundary_pages: what it reused.
        path_pages: what the tree knew of it.
        known_pages: what the tree ever knew of it, as far as the history goes back.
        limited_by: the component that limited the match, empty for none (rule M-4).
        reason: why.
        components: in their order.
        is_complete: whether the history has forgotten nothing; if not, `never stored` may mean `long ago`.
        shortfalls: what the tiers below had and was not brought up (rule H-9).
    """

    request: Moment
    page_tokens: int
    prompt_tokens: int
    limit_pages: int
    boundary_pages: int
    path_pages: int
    known_pages: int
    limited_by: str
    reason: str
    components: tuple[ComponentStory, ...]
    is_complete: bool
    shortfalls: tuple[Shortfall, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """The request in question.

    Attributes:
        moment: names it.
        prompt_tokens: its length.
        page_keys: chained keys of its whole pages, as `graftline.key.page_keys` gives them.
    """

    moment: Moment
    prompt_tokens: int
    page_keys: Sequence[bytes]


def explain_match(
    asked: Asked,
    match: Match,
    specs: Sequence[ComponentSpec],
    page_tokens: int,
    history: History,
    tier: Tier = Tier.DEVICE,
) -> Explanation:
    """Why a match is what it is.

    Args:
        asked: the request.
        match: its match, just made.
        specs: the components, in their order.
        page_tokens: tokens a page, of the tree.
        history: fed with every event of the tree up to now.
        tier: the tree's.
    """
    fates = {spec.name: history.fates(spec.name, tier, asked.page_keys) for spec in specs}
    seen = [page for found in fates.values() for page, fate in enumerate(found) if fate is not None]
    limit = min(len(asked.page_keys), max(0, asked.prompt_tokens - 1) // page_tokens)
    known = max(match.path_tokens // page_tokens, min(limit, max(seen, default=-1) + 1))
    stories = tuple(
        ComponentStory(
            component=spec.name,
            own_pages=vote.boundary_tokens // page_tokens,
            without_pages=vote.without_tokens // page_tokens,
            needed_first_page=spec.rule.first_page(known, page_tokens),
            stretches=stretches(fates[spec.name][:known]),
        )
        for spec, vote in zip(specs, match.votes, strict=True)
    )
    return Explanation(
        request=asked.moment,
        page_tokens=page_tokens,
        prompt_tokens=asked.prompt_tokens,
        limit_pages=limit,
        boundary_pages=match.boundary_tokens // page_tokens,
        path_pages=match.path_tokens // page_tokens,
        known_pages=known,
        limited_by=match.limited_by,
        reason=match.reason,
        components=stories,
        is_complete=history.forgotten == 0,
    )


def as_json(explanation: Explanation) -> dict[str, Any]:
    """An explanation in tokens, ready for `json.dumps`; `docs/guide/replay.md` names the fields."""
    page = explanation.page_tokens
    return {
        "schema": SCHEMA,
        "request": asdict(explanation.request),
        "page_tokens": page,
        "prompt_tokens": explanation.prompt_tokens,
        "limit_tokens": explanation.limit_pages * page,
        "reused_tokens": explanation.boundary_pages * page,
        "path_tokens": explanation.path_pages * page,
        "known_once_tokens": explanation.known_pages * page,
        "limited_by": explanation.limited_by,
        "reason": explanation.reason,
        "history_is_complete": explanation.is_complete,
        "components": [_component(story, page) for story in explanation.components],
        "shortfalls": [
            {
                "tier": short.tier.name.lower(),
                "reached_tokens": short.reached_tokens,
                "lost_tokens": short.lost_tokens,
                "reason": short.reason,
            }
            for short in explanation.shortfalls
        ],
    }


def _component(story: ComponentStory, page: int) -> dict[str, Any]:
    return {
        "component": story.component,
        "own_tokens": story.own_pages * page,
        "without_tokens": story.without_pages * page,
        "needed_from_token": story.needed_first_page * page,
        "stretches": [_stretch(stretch, page) for stretch in story.stretches],
    }


def _stretch(stretch: Stretch, page: int) -> dict[str, Any]:
    fate = stretch.fate
    return {
        "first_token": stretch.first_page * page,
        "end_token": stretch.end_page * page,
        "value": stretch.state,
        "stored_for": asdict(fate.stored) if fate and fate.stored else None,
        "removed_for": asdict(fate.removed) if fate and fate.removed else None,
    }


def is_missing(stretch: Stretch) -> bool:
    """Whether there was a value that is not there any more."""
    return stretch.fate is not None and stretch.fate.removed is not None and stretch.state != NEVER
