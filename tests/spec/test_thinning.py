"""C: a session keeps only the newest of its own states."""

from __future__ import annotations

import numpy as np
import pytest

from graftline.cache import HostConfig, Session, SessionLimits
from graftline.cache.placement import parse_placement
from graftline.cache.thinning import Lines
from graftline.errors import ConfigError
from graftline.key import Namespace
from spec.cache_support import Model

PAGE = 4
MINE, OTHERS = Session("mine"), Session("other")


@pytest.fixture(params=["python", "rust"])
def core(request: pytest.FixtureRequest) -> str:
    """Which core keeps the books."""
    return request.param


def model_of(core: str, placement: str = "answer,branch,newest:2", **more: object) -> Model:
    model = Model(str(more.pop("composition", "full_state")), page_tokens=PAGE, slots=200, core=core, **more)
    model.cache.placement = parse_placement(placement)
    return model


def turn(number: int, start: int = 0) -> list[int]:
    """The prompt of a turn: each adds two pages, the last token of all is not computed before."""
    return [*range(start, start + 2 * PAGE * (number + 1)), 9999]


def states(model: Model, path: list[int], name: str = "state") -> list[int]:
    """Boundaries of a path with a state on the device, in pages."""
    found = model.cache.core.match(Namespace(), path)
    held = model.cache.core.holdings(found, found.path_tokens)[name]
    return [page + 1 for run in held for page in range(run.first_page, run.end_page)]


@pytest.mark.rule("C-13")
@pytest.mark.parametrize(("placement", "kept"), [("1", [10]), ("2", [8, 10]), ("4", [4, 6, 8, 10])])
def test_the_newest_of_a_session_stay(core: str, placement: str, kept: list[int]) -> None:
    model = model_of(core, f"answer,branch,newest:{placement}")
    for number in range(5):
        assert model.run(turn(number), session=MINE).reused_tokens == 2 * PAGE * number
    assert states(model, turn(4)) == kept
    uses = {use.component: use for use in model.cache.uses()}
    assert uses["state"].held == len(kept)
    assert model.cache.evicted_slots["state"] == 5 - len(kept)
    model.assert_idle_and_whole()


@pytest.mark.rule("C-13")
def test_all_stay_unless_the_placement_says_so(core: str) -> None:
    model = model_of(core, "answer,branch")
    for number in range(5):
        model.run(turn(number), session=MINE)
    assert states(model, turn(4)) == [2, 4, 6, 8, 10]


@pytest.mark.rule("C-13")
def test_what_a_request_kept_for_its_own_turn_goes_with_its_end(core: str) -> None:
    """Replay boundary and prompt's end serve while the answer is computed."""
    model = model_of(core, "replay,end,answer,branch,newest:1")
    model.run(turn(1)[:-1], range(500, 510), session=MINE)
    assert states(model, [*turn(1)[:-1], *range(500, 509)]) == [6]


@pytest.mark.rule("C-13")
def test_every_component_with_states_is_thinned(core: str) -> None:
    model = model_of(core, "answer,branch,newest:1", composition="all")
    for number in range(4):
        model.run(turn(number), session=MINE)
    assert states(model, turn(3)) == states(model, turn(3), "conv") == [8]
    model.assert_idle_and_whole()


@pytest.mark.rule("C-13")
def test_what_was_kept_for_others_stays(core: str) -> None:
    """Marks and a grid, though nobody else has come to them yet."""
    model = model_of(core, "answer,branch,marks,newest:1")
    model.run(turn(0), session=MINE, marks=[PAGE])
    for number in range(1, 4):
        model.run(turn(number), session=MINE)
    assert states(model, turn(3)) == [1, 8]
    grid = model_of(core, f"answer,grid:{PAGE},newest:1")
    for number in range(2):
        grid.run(turn(number), session=MINE)
    assert states(grid, turn(1)) == [1, 2, 3, 4]


@pytest.mark.rule("C-13", "E-9")
def test_what_another_session_comes_back_to_stays(core: str) -> None:
    model = model_of(core, "answer,branch,newest:1")
    model.run(turn(0), session=MINE)
    model.run(turn(1), session=MINE)
    model.cache.fork_session("mine", "other")
    for number in range(2, 5):
        model.run(turn(number), session=MINE)
    assert states(model, turn(4)) == [4, 10]
    assert model.run([*turn(1)[:-1], *range(800, 812)], session=OTHERS).reused_tokens == 4 * PAGE


@pytest.mark.rule("C-13", "E-9")
def test_a_state_where_paths_part_stays(core: str) -> None:
    model = model_of(core, "answer,branch,newest:1")
    model.run(turn(0), session=MINE)
    model.run(turn(1), session=MINE)
    model.run([*turn(1)[:-1], *range(800, 812)])
    for number in range(2, 5):
        model.run(turn(number), session=MINE)
    assert states(model, turn(4)) == [4, 10]


@pytest.mark.rule("C-13")
def test_a_path_that_was_left_takes_nothing_of_the_new_one_along(core: str) -> None:
    """A prompt was rewritten: what lies at the same places of its path is not what the session kept there."""
    model = model_of(core, "answer,branch,newest:1")
    for number in range(3):
        model.run(turn(number), session=MINE)
    other = [*turn(0)[: 2 * PAGE], *range(300, 300 + 4 * PAGE), 9999]
    model.run(other, session=OTHERS)
    model.cache.close_session("other")
    longer = [*other[:-1], 1, 2, 3, 4, 9999]
    model.run(longer, session=MINE)
    assert states(model, turn(2)) == [2, 6], "the path that was left is left to eviction"
    assert states(model, longer) == [2, 6, 7], "it was the other one's"
    model.assert_idle_and_whole()


@pytest.mark.rule("C-13", "S-4")
def test_who_finishes_late_thins_nothing(core: str) -> None:
    model = model_of(core, "answer,branch,newest:1")
    model.run(turn(0), session=MINE)
    with model.begin(turn(1), session=MINE) as request:
        model.prefill(request)
        model.cache.close_session("mine")
        request.finish()
    assert states(model, turn(1)) == [2, 4]


@pytest.mark.rule("C-13", "S-9")
def test_conversations_that_name_no_session_are_thinned_where_they_are_inferred(core: str) -> None:
    for infer, kept in ((True, [6, 8]), (False, [2, 4, 6, 8])):
        model = model_of(core, sessions=SessionLimits(infer=infer))
        path: list[int] = []
        for number in range(4):
            path = [*path, *range(100 * number, 100 * number + 2 * PAGE)]
            model.run([*path, 9999])
        # the prompts' last tokens differ from what follows, their pages do not
        assert states(model, path) == kept


@pytest.mark.rule("C-13", "H-3")
def test_the_host_keeps_what_the_device_drops(core: str) -> None:
    host = HostConfig({"full": 200, "state": 200})
    model = model_of(core, "answer,branch,newest:1", host=host)
    for number in range(4):
        model.run(turn(number), session=MINE)
        model.cache.lower.flush()
    assert states(model, turn(3)) == [8]
    back = [*turn(1)[:-1], *range(800, 806)]
    assert model.begin_and_abort(back) == 0
    load = model.cache.load(back)
    assert load is not None
    while not load.done:
        model.cache.pump()
    with model.begin(back) as request:
        assert request.reused_tokens == 4 * PAGE
    load.release()
    model.assert_idle_and_whole()


@pytest.mark.rule("C-13")
def test_a_run_of_conversations_keeps_its_books(core: str) -> None:
    """Drawn turns of several sessions that share starts, in a small pool, with and without names."""
    chance = np.random.default_rng(7)
    pools = {"full": 150, "state": 12}
    for placement in ("answer,branch,newest:1", "replay,end,answer,branch,marks,newest:2"):
        model = Model("full_state", page_tokens=PAGE, slots=pools, core=core)
        model.cache.placement = parse_placement(placement)
        paths = {name: list(range(3 * PAGE)) for name in "abcd"}
        for _ in range(120):
            name = str(chance.choice(list(paths)))
            added = chance.integers(0, 3, int(chance.integers(1, 14))).tolist()
            paths[name] = [*paths[name][: int(chance.integers(1, 90))], *added]
            session = Session(name) if name in "ab" else None
            model.run(paths[name], added, session=session, marks=[PAGE])
            model.cache.check()
        model.assert_idle_and_whole()


@pytest.mark.rule("C-13")
def test_lines_are_bounded_and_closed_with_their_sessions() -> None:
    lines = Lines(model_of("python").cache.device, most=3)
    path = np.arange(10 * PAGE, dtype=np.uint32)
    for number in range(10):
        assert lines.advance(f"s{number}", Namespace(), path, [2 * PAGE], 1) == []
        assert len(lines) <= 3
    assert lines.advance("s9", Namespace(), path, [PAGE, 5 * PAGE], 1) == [PAGE, 2 * PAGE]
    assert lines.advance("s0", Namespace(), path, [5 * PAGE], 1) == [], "forgotten"
    lines.forget(["s9", "nobody"])
    assert lines.advance("s9", Namespace(), path, [6 * PAGE], 1) == []
    lines.advance("s9", Namespace(), path[: 6 * PAGE], [6 * PAGE], 1)
    other = path.copy()
    other[0] = 77
    assert lines.advance("s9", Namespace(), other, [8 * PAGE], 1) == [], "another path"
    assert lines.advance("s9", Namespace("n"), other, [9 * PAGE], 1) == [], "another namespace"


@pytest.mark.rule("C-13")
def test_placements_tell_how_many(core: str) -> None:
    assert parse_placement("answer,newest:3").newest == 3
    for text in ("newest", "newest:0", "newest:x", "newest:-1"):
        with pytest.raises(ConfigError, match="newest:COUNT"):
            parse_placement(text)
