"""C: who owns which slot, and when. `PrefixCache` over numpy pools; see `cache_support.py` for the model."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from graftline.cache import PrefixCache
from graftline.cache.request import RequestEndedError
from graftline.components import Checkpoint, ComponentSpec, Full, Window
from graftline.errors import CapacityError, ConfigError, IntegrityError
from graftline.key import Namespace
from spec.cache_support import COMPOSITIONS, INSTALLED, Fault, Model

PROMPT = list(range(100, 141))  # 41 tokens: 10 whole pages of 4, and one token
EVERY = sorted(COMPOSITIONS)
WITH_STATE = ["full_state", "state", "all"]


@pytest.fixture(autouse=True, params=INSTALLED)
def core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test here runs on every core."""
    monkeypatch.setattr(Model, "usual_core", request.param)
    return request.param


def use_of(model: Model, name: str):
    return next(use for use in model.cache.uses() if use.component == name)


# -- C-1, C-2 -------------------------------------------------------------------------------------------


@pytest.mark.rule("C-1")
@pytest.mark.parametrize("composition", EVERY)
def test_free_held_and_private_are_the_whole_pool_at_every_moment(composition: str) -> None:
    model = Model(composition)
    with model.begin(PROMPT) as request:
        while request.computed_tokens < len(PROMPT):
            model.compute(request, min(request.next_stop(), request.computed_tokens + 3))
            model.cache.check()
            assert all(use.free + use.held + use.private == use.capacity for use in model.cache.uses())
        assert sum(use.private for use in model.cache.uses()) > 0
        request.finish()
    model.assert_idle_and_whole()


@pytest.mark.rule("C-1")
def test_a_slot_that_changes_hands_wrongly_is_an_error_at_once() -> None:
    ledger = Model("full").cache.ledgers["full"]
    free = ledger.take(1)
    ledger.give_back(free)
    for wrong in (ledger.give_back, ledger.adopt, ledger.evict):
        with pytest.raises(IntegrityError, match="C-1"):
            wrong(free)


@pytest.mark.rule("C-1")
def test_check_sees_a_lost_slot() -> None:
    model = Model("full")
    model.cache.ledgers["full"].take(1)
    with pytest.raises(IntegrityError, match="C-2"):
        model.cache.check()


@pytest.mark.rule("C-2")
@pytest.mark.parametrize("composition", EVERY)
@pytest.mark.parametrize("place", ["begun", "prompt", "generating"])
def test_leaving_without_finish_gives_everything_back(composition: str, place: str) -> None:
    model = Model(composition)
    model.run(PROMPT[:20])
    with model.begin(PROMPT) as request:
        if place != "begun":
            model.compute(request, request.next_stop())
        if place == "generating":
            model.prefill(request)
            model.generate(request, range(200, 210))
    model.assert_idle_and_whole()


@pytest.mark.rule("C-2")
@pytest.mark.parametrize("error", [CapacityError("swa", 1, 0), RuntimeError("a fault"), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["allocate", "copy", "insert", "lease", "release_components"])
@pytest.mark.parametrize("composition", EVERY)
def test_nothing_is_left_behind_whatever_is_raised_in_between(
    composition: str, where: str, error: BaseException
) -> None:
    """The n-th call fails, for every n that one life of a request has."""
    happened, n = True, 0
    while happened:
        model = Model(composition)
        model.run(PROMPT[:20])
        owners = {"allocate": [model.cache], "copy": model.pools.values()}.get(where, [model.cache.core])
        with Fault(owners, where, n, error) as fault, contextlib.suppress(type(error)):
            model.run([*PROMPT[:30], 7, 8, 9], range(200, 212))
        happened = fault.happened
        model.assert_idle_and_whole()
        again = model.run(PROMPT)
        assert again.reused_tokens >= (0 if composition == "window" else 16)
        model.assert_idle_and_whole()
        n += 1
    assert n > 1 or (where == "copy" and composition not in WITH_STATE)


@pytest.mark.rule("C-2")
def test_a_request_that_has_ended_is_refused_and_may_be_aborted_again() -> None:
    model = Model("all")
    with model.begin(PROMPT) as request:
        model.prefill(request)
        request.finish()
        for act in (request.finish, lambda: request.grow(41), lambda: request.advance(41)):
            with pytest.raises(RequestEndedError):
                act()
        request.abort()
    model.assert_idle_and_whole()


@pytest.mark.rule("C-2")
@pytest.mark.parametrize("composition", EVERY)
def test_a_request_that_does_not_fit_takes_nothing(composition: str) -> None:
    model = Model(composition, slots=3)
    with model.begin(PROMPT) as request, contextlib.suppress(CapacityError):
        request.grow(len(PROMPT))
        assert composition == "state"
    model.assert_idle_and_whole()


@pytest.mark.rule("C-2")
def test_no_state_slot_means_no_request() -> None:
    model = Model("full_state", slots={"full": 50, "state": 2})
    with model.begin(PROMPT), model.begin(PROMPT):
        with pytest.raises(CapacityError, match="'state'"):
            model.begin(PROMPT)
        assert model.cache.open_requests == 2
    model.assert_idle_and_whole()


# -- C-3, C-4 -------------------------------------------------------------------------------------------


@pytest.mark.rule("C-3")
@pytest.mark.parametrize("composition", WITH_STATE)
def test_a_reused_state_is_copied_and_then_free_to_go(composition: str) -> None:
    model = Model(composition)
    model.run(PROMPT)
    kept = {name: model.values(name).copy() for name in model.rules}
    with model.begin(PROMPT) as request:
        assert request.reused_tokens == 40
        for name, rule in model.rules.items():
            if rule.holds_state:
                assert use_of(model, name).leased == 0
                assert model.values(name)[request.live_slot(name)] == model.expected(request)[39]
                model.cache.settle(model.cache.core.evict(name, 1000))
                assert use_of(model, name).held == 0
        model.prefill(request)
        request.finish()
    for name, values in kept.items():
        held = values != 0
        assert (model.values(name)[held] == values[held]).all() or model.rules[name].holds_state


@pytest.mark.rule("C-4")
@pytest.mark.parametrize("composition", EVERY)
def test_pages_below_the_reused_boundary_are_only_read(composition: str) -> None:
    """Whatever one request does, the values that another one reads stay as they are."""
    model = Model(composition)
    model.run(PROMPT)
    with model.begin(PROMPT) as reader, model.begin(PROMPT) as writer:
        shared = {
            name: (table := reader.table(name).copy(), model.values(name)[table[table >= 0]].copy())
            for name, rule in model.rules.items()
            if not rule.holds_state
        }
        model.prefill(writer)
        model.generate(writer, range(300, 330))
        writer.finish()
        model.cache.clear()
        model.run([*PROMPT[:20], 1, 2, 3, 4, 5, 6, 7, 8, 9])
        for name, (table, values) in shared.items():
            assert (reader.table(name) == table).all()
            assert (model.values(name)[table[table >= 0]] == values).all()
        model.prefill(reader)


@pytest.mark.rule("C-4")
def test_a_request_writes_to_slots_of_its_own() -> None:
    model = Model("full_window")
    model.run(PROMPT)
    with model.begin(PROMPT) as first, model.begin(PROMPT) as second:
        for request in (first, second):
            request.grow(60)
        for name in model.rules:
            assert first.table(name)[9] == second.table(name)[9]
            mine, others = set(first.table(name)[10:].tolist()), set(second.table(name)[10:].tolist())
            assert not mine & others
            assert not (mine | others) & set(first.table(name)[:10].tolist())


# -- C-5 to C-10 ----------------------------------------------------------------------------------------


@pytest.mark.rule("C-5")
@pytest.mark.parametrize(
    ("length", "stops"),
    [(1, [1]), (3, [3]), (4, [4]), (5, [4, 5]), (40, [36, 40]), (41, [40, 41]), (43, [40, 43]), (8, [4, 8])],
)
def test_a_prompt_pauses_at_its_replay_boundary_and_last_whole_page(length: int, stops: list[int]) -> None:
    for use_cache in (True, False):
        model = Model("all")
        with model.begin(
            PROMPT[:length] if length <= 41 else [*PROMPT, 1, 2], use_cache=use_cache
        ) as request:
            assert model.prefill(request) == stops


@pytest.mark.rule("C-5")
@pytest.mark.parametrize("composition", EVERY)
def test_the_branch_point_and_marks_are_kept_for_the_next(composition: str) -> None:
    model = Model(composition)
    model.run(PROMPT)
    with model.begin([*PROMPT[:22], *range(1, 20)], marks=(31, 13)) as request:
        stops = model.prefill(request)
        request.finish()
    start = request.reused_tokens
    assert [stop for stop in stops if stop not in (40, 41)] == [s for s in (12, 20, 28) if s > start]
    assert model.begin_and_abort([*PROMPT[:22], *range(50, 60)]) == 20
    assert model.begin_and_abort([*PROMPT[:22], *range(1, 9), *range(70, 80)]) == 28
    if start < 12:
        assert model.begin_and_abort([*PROMPT[:12], *range(50, 60)]) == 12


@pytest.mark.rule("C-14")
@pytest.mark.parametrize("composition", EVERY)
def test_a_prompt_pauses_only_for_states_and_after_a_cut(composition: str) -> None:
    model = Model(composition)
    model.cache.cut_tokens = 16
    model.run(PROMPT[:20], [1, 2, 3, 4, 5, 6])  # what is kept ends at 24, no cut
    start, longer = 24, [*PROMPT[:20], 1, 2, 3, 4, *PROMPT[24:]]
    with model.begin(longer, marks=(31,)) as request:
        assert request.reused_tokens == start
        stops = model.prefill(request)
        request.finish()
    assert stops == ([28, 40, 41] if composition in WITH_STATE else [41])
    for length, kept in ((41, 40), (29, 28), (25, 24)):
        assert model.begin_and_abort(longer[:length]) == kept
    for stop in (0, 16):  # after a cut it pauses
        model.cache.clear()
        if stop:
            model.run(PROMPT[: stop + 1])
        with model.begin(PROMPT) as request:
            assert request.reused_tokens == stop
            assert model.prefill(request) == [40, 41]
    model.cache.clear()
    model.run(PROMPT, marks=(30,))
    with model.begin([*PROMPT[:30], *range(1, 12)], marks=(30,)) as request:  # after a mark too
        assert request.reused_tokens == 28
        assert model.prefill(request) == [40, 41]
    model.assert_idle_and_whole()


@pytest.mark.rule("C-14")
def test_others_can_still_make_a_request_pause() -> None:
    model = Model("full_window")
    model.cache.cut_tokens = 16
    model.run(PROMPT[:20], [1, 2, 3, 4, 5, 6])
    with model.begin([*PROMPT[:20], 1, 2, 3, 4, *PROMPT[24:]]) as request:
        request.add_stop(32)
        assert model.prefill(request) == [32, 41]
    model.assert_idle_and_whole()


@pytest.mark.rule("C-5")
def test_a_mark_outside_of_the_prompt_and_a_step_over_a_stop_are_refused() -> None:
    model = Model("full_state")
    for mark in (-1, 42):
        with pytest.raises(ConfigError, match=f"mark {mark}"):
            model.begin(PROMPT, marks=(mark,))
    with model.begin(PROMPT) as request:
        request.grow(41)
        with pytest.raises(ConfigError, match="stop at 40"):
            request.advance(41)
        request.advance(8)
        for wrong in (7, 42):
            with pytest.raises(ConfigError, match=f"to {wrong}"):
                request.advance(wrong)
    model.assert_idle_and_whole()


@pytest.mark.rule("C-6")
@pytest.mark.parametrize("composition", WITH_STATE)
def test_generated_text_keeps_one_state_and_the_next_turn_starts_there(composition: str) -> None:
    model = Model(composition)
    with model.begin(PROMPT) as request:
        model.prefill(request)
        for number in range(30):
            model.generate(request, [200 + number, 0][:1])
            model.compute(request, len(request.tokens))
            for name, rule in model.rules.items():
                if rule.holds_state:
                    assert use_of(model, name).private == (1 if number < 2 else 2)
        request.finish()
    assert request.computed_tokens == 71
    assert model.begin_and_abort([*request.tokens.tolist(), 5, 6, 7]) == 68


@pytest.mark.rule("C-7")
@pytest.mark.parametrize("composition", EVERY)
def test_the_last_token_is_not_put_into_the_tree(composition: str) -> None:
    """It was sampled and never computed, even where it would fill a page."""
    model = Model(composition)
    request = model.run(PROMPT, [1, 2, 3])
    assert len(request.tokens) == 44
    assert request.computed_tokens == 43
    assert model.begin_and_abort([*request.tokens.tolist(), 5]) == 40


@pytest.mark.rule("C-8")
def test_a_checkpoint_without_a_slot_is_left_out_and_counted() -> None:
    model = Model("full_state", slots={"full": 100, "state": 2})
    with model.begin(range(500, 540)) as other:
        request = model.run(PROMPT, range(200, 212))
        assert model.cache.skipped_checkpoints == 1 + 3  # at the stop and at three page boundaries after it
        assert request.computed_tokens == 52
        other.abort()
    found = model.cache.core.match(model.namespaces[id(request)], request.tokens)
    assert (found.path_tokens, found.boundary_tokens, found.limited_by) == (52, 0, "state")
    assert model.run(PROMPT).reused_tokens == 0
    assert model.run(PROMPT).reused_tokens == 40
    model.assert_idle_and_whole()


@pytest.mark.rule("C-9")
@pytest.mark.parametrize("composition", ["window", "full_window", "full_chunk", "all"])
def test_what_a_window_has_left_is_given_back_as_the_request_goes_on(composition: str) -> None:
    model = Model(composition, page_tokens=2, slots=400)
    bounded = [name for name, rule in model.rules.items() if not rule.holds_state and not rule.prefix_closed]
    model.run(list(range(1000, 1100)))
    for more in ({}, {"use_cache": False}):
        most = dict.fromkeys(bounded, 0)
        with model.begin(list(range(1000, 1300)), **more) as request:
            while request.computed_tokens < 300:
                model.compute(request, min(request.next_stop(), request.computed_tokens + 4))
                for name in bounded:
                    use = use_of(model, name)
                    most[name] = max(most[name], use.private + use.leased)
            model.generate(request, range(60))
        assert max(most.values()) <= 2 * 6 + 3  # twice what any rule here looks back to, and a chunk


@pytest.mark.rule("C-10")
@pytest.mark.parametrize("composition", EVERY)
def test_a_prefix_computed_by_many_at_once_is_held_once(composition: str) -> None:
    model = Model(composition)
    alone = Model(composition)
    alone.run(PROMPT)
    with contextlib.ExitStack() as stack:
        requests = [stack.enter_context(model.begin(PROMPT)) for _ in range(5)]
        for request in requests:
            model.compute(request, 40)
        for name, rule in model.rules.items():
            if not rule.holds_state:
                assert len({tuple(request.table(name)[:10]) for request in requests}) == 1
                assert use_of(model, name).private == 0
        for request in requests:
            model.prefill(request)
            request.finish()
    for mine, once in zip(model.cache.uses(), alone.cache.uses(), strict=True):
        assert mine.held == once.held
    model.assert_idle_and_whole()


# -- the rest of the facade -----------------------------------------------------------------------------


def test_what_the_cache_refuses() -> None:
    spec = ComponentSpec("state", Checkpoint(), 4)
    with pytest.raises(ConfigError, match="needs a pool"):
        PrefixCache([spec], page_tokens=4)
    with pytest.raises(ConfigError, match="unknown core 'perl'"):
        PrefixCache([ComponentSpec("full", Full(), 4)], page_tokens=4, core="perl")
    model = Model("full")
    refused = (([], "at least one"), ([1, -1], "-1"), ([0.5], "integers"), ([2**32], "4294967296"))
    for tokens, message in refused:
        with pytest.raises(ConfigError, match=message):
            model.begin(tokens)
    model.assert_idle_and_whole()


def test_allocating_too_much_evicts_all_and_takes_nothing() -> None:
    model = Model("full", slots=12)
    model.run(PROMPT)
    with pytest.raises(CapacityError) as caught:
        model.cache.allocate("full", 13, Namespace())
    assert (caught.value.component, caught.value.wanted_slots, caught.value.free_slots) == ("full", 13, 12)
    model.assert_idle_and_whole()


@pytest.mark.parametrize("composition", EVERY)
def test_clear_keeps_what_an_open_request_needs(composition: str) -> None:
    model = Model(composition)
    model.run(PROMPT)
    with model.begin(PROMPT) as request:
        model.cache.clear()
        model.prefill(request)
        request.finish()
    assert (model.cache.clear() > 0) == (composition != "state")  # a state that was copied may go
    assert all(use.free == use.capacity for use in model.cache.uses())
    assert model.begin_and_abort(PROMPT) == 0


def test_namespaces_do_not_share() -> None:
    model = Model("all")
    model.run(PROMPT, salt="a")
    assert model.begin_and_abort(PROMPT, salt="b") == 0
    assert model.begin_and_abort(PROMPT) == 0
    assert model.begin_and_abort(PROMPT, salt="a") == 40


def test_a_cache_that_is_not_used_keeps_nothing() -> None:
    model = Model("all")
    model.run(PROMPT, range(9), use_cache=False)
    assert all(use.free == use.capacity for use in model.cache.uses())


@pytest.mark.parametrize("composition", WITH_STATE)
def test_steps_over_several_pages_of_generated_text_never_keep_a_wrong_state(composition: str) -> None:
    """As with speculation: any number of tokens is accepted at once, over page boundaries too."""
    for seed in range(20):
        random, model = np.random.default_rng(seed), Model(composition)
        with model.begin(PROMPT) as request:
            model.prefill(request)
            for _ in range(6):
                request.append(random.integers(1, 50, random.integers(1, 9)))
                model.compute(request, len(request.tokens))
            request.finish()
        model.run([*request.tokens.tolist(), 77, 78])
        model.assert_idle_and_whole()


@pytest.mark.parametrize("composition", ["window", "full_window", "all"])
def test_control_a_window_that_is_too_short_is_seen(composition: str) -> None:
    model = Model(composition, page_tokens=1)
    model.cache = PrefixCache(
        [
            ComponentSpec(name, Window(rule.lookback_tokens - 1) if name == "swa" else rule, 200)
            for name, rule in model.rules.items()
        ],
        page_tokens=1,
        pools=model.pools,
    )
    with pytest.raises(AssertionError, match="swa"):
        model.prefill(model.begin(PROMPT), most=4)


@pytest.mark.parametrize("composition", EVERY)
def test_control_a_wrong_value_is_seen(composition: str) -> None:
    for name in COMPOSITIONS[composition]:
        model = Model(composition)
        model.run([*PROMPT, 1])
        model.values(name)[:] += 1
        if name == "chunk":
            continue  # at token 40 a chunk of 8 begins and nothing is read
        with pytest.raises(AssertionError, match=name):
            model.prefill(model.begin(PROMPT))
