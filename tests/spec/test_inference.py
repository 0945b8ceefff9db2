"""S: whose turn a request is that names no session."""

from __future__ import annotations

import numpy as np
import pytest

from graftline.cache import HostConfig, Session, SessionLimits
from graftline.cache.fingerprints import Fingerprints
from graftline.cache.inference import ENDS_MAX, FORKS_MAX
from graftline.key import Namespace
from spec.cache_support import Fault, Model

PAGE = 4
FIRST = list(range(100, 117))
ANSWER = list(range(200, 206))
NEXT = [*FIRST, *ANSWER, *range(300, 310)]


@pytest.fixture(params=["python", "rust"])
def core(request: pytest.FixtureRequest) -> str:
    """Which core keeps the books."""
    return request.param


def model_of(core: str, **more: object) -> Model:
    return Model("full", page_tokens=PAGE, slots=400, core=core, **more)


def sessions(model: Model) -> int:
    """Sessions that are open on the device."""
    return model.cache.core.stats().sessions


@pytest.mark.rule("S-9")
def test_a_prompt_that_goes_on_after_an_answer_is_the_next_turn(core: str) -> None:
    model = model_of(core)
    model.run(FIRST, ANSWER)
    assert sessions(model) == 0, "one request says nothing"
    model.run(NEXT, ANSWER)
    assert sessions(model) == 1
    model.run([*NEXT, *ANSWER, 1, 2, 3], ANSWER)
    assert sessions(model) == 1
    model.run([7, *NEXT])
    assert sessions(model) == 1, "another prompt"
    model.assert_idle_and_whole()


@pytest.mark.rule("S-9")
def test_a_client_that_changes_answers_goes_on_after_its_prompt(core: str) -> None:
    model = model_of(core)
    model.run(FIRST, ANSWER)
    rewritten = [*FIRST, 900, 901, 902, 903, 904, 905, 906]
    model.run(rewritten, ANSWER)
    assert sessions(model) == 1
    model.run(FIRST, ANSWER)
    assert sessions(model) == 1, "the same prompt again goes on with nothing"


@pytest.mark.rule("S-9")
def test_a_turn_moves_the_frontier_as_a_session_that_was_named_would(core: str) -> None:
    """What the conversation comes back to outlives what is newer, under an order that asks for sessions."""
    model = Model("full", page_tokens=PAGE, slots=26, core=core, policy="session")
    model.run(FIRST, ANSWER)
    model.run(NEXT, ANSWER)
    for start in (1000, 2000, 3000):
        model.run(range(start, start + 41))
    assert model.begin_and_abort([*NEXT, *ANSWER]) == (len(NEXT) + len(ANSWER) - 1) // PAGE * PAGE


@pytest.mark.rule("S-9")
def test_two_turns_at_a_time_are_two_conversations(core: str) -> None:
    model = model_of(core)
    model.run(FIRST, ANSWER)
    one, two = [*NEXT, 1, 2, 3, 4], [*NEXT, 5, 6, 7, 8]
    with model.begin(one) as first, model.begin(two) as second:
        for request in (first, second):
            model.prefill(request)
            request.finish()
    assert sessions(model) == 1
    model.run([*two, 1, 2])
    assert sessions(model) == 2
    model.run([*one, 1, 2])
    assert sessions(model) == 2


@pytest.mark.rule("S-9")
def test_an_aborted_turn_can_be_tried_again(core: str) -> None:
    model = model_of(core)
    model.run(FIRST, ANSWER)
    for _ in range(2 * FORKS_MAX):
        model.begin_and_abort(NEXT)
    model.run(NEXT)
    assert sessions(model) == 1
    model.run([*NEXT, 1, 2, 3, 4])
    assert sessions(model) == 1


@pytest.mark.rule("S-9")
@pytest.mark.parametrize("method", ["match", "lease"])
def test_a_fault_leaves_no_turn_open(method: str) -> None:
    model = model_of("python")
    model.run(FIRST, ANSWER)
    with Fault([model.cache.core], method, 0, RuntimeError("broken")), pytest.raises(RuntimeError):
        model.begin(NEXT)
    model.run(NEXT)
    model.run([*NEXT, 1, 2, 3, 4])
    assert sessions(model) == 1


@pytest.mark.rule("S-9")
def test_a_start_that_many_share_is_nobodys(core: str) -> None:
    model = model_of(core)
    model.run(FIRST)
    for number in range(FORKS_MAX):
        model.run([*FIRST, *[50 + number] * 8])
        assert sessions(model) == 1, "all of one tree"
    fresh = [*FIRST, *[70] * 8]
    model.run(fresh)
    model.run([*fresh, *[71] * 8])
    assert sessions(model) == 2, "the next one is a conversation of its own"


@pytest.mark.rule("S-9")
def test_who_names_a_session_or_keeps_nothing_is_left_alone(core: str) -> None:
    model = model_of(core)
    model.run(FIRST, ANSWER, session=Session("mine"))
    model.run(NEXT, ANSWER)
    assert sessions(model) == 1, "what a named session ended at is no inferred one's"
    model.run([*NEXT, *ANSWER, 1, 2, 3], use_cache=False)
    model.run(NEXT, ANSWER, salt="another tenant")
    assert sessions(model) == 1
    off = model_of(core, sessions=SessionLimits(infer=False))
    off.run(FIRST, ANSWER)
    off.run(NEXT)
    assert off.cache.inference is None
    assert sessions(off) == 0


@pytest.mark.rule("S-9")
def test_the_host_knows_the_session_too(core: str) -> None:
    model = model_of(core, host=HostConfig({"full": 400}))
    model.run(FIRST, ANSWER)
    model.run(NEXT, ANSWER)
    model.cache.lower.flush()
    assert model.cache.lower.host.core.stats().sessions == 1
    model.assert_idle_and_whole()


@pytest.mark.rule("S-9", "S-1", "S-2")
def test_what_is_remembered_is_bounded_and_ends_with_time(core: str) -> None:
    most = 20
    model = model_of(core, sessions=SessionLimits(ttl_s=50.0, most=most))
    inference = model.cache.inference
    for number in range(3 * most):
        model.cache.set_time(float(number) / 10)
        start = [1000 + number] * 9
        for turn in range(2):
            model.run([*start, *[turn] * 8 * turn])
        assert len(inference) <= most // 2
        assert sessions(model) <= most // 2
    long = [9] * 9
    for turn in range(ENDS_MAX):
        model.run([*long, *range(2000, 2000 + PAGE * turn)])
    assert inference.ends <= ENDS_MAX * len(inference)
    model.cache.set_time(1000.0)
    assert (len(inference), inference.ends, sessions(model)) == (0, 0, 0)


@pytest.mark.rule("S-9")
def test_fingerprints_tell_paths_apart_and_stay_the_same() -> None:
    prints = Fingerprints(PAGE)
    space = Namespace("m")
    path = np.arange(10 * PAGE + 3, dtype=np.uint32)
    before = prints.of(space, path)
    assert len(before) == 10
    longer = prints.of(space, np.arange(100_000, dtype=np.uint32))
    assert (longer[:10] == before).all(), "a longer path has those of its beginning"
    seen = set(before.tolist())
    for place in range(len(path) - 3):
        other = path.copy()
        other[place] += 1
        found = prints.of(space, other)
        assert (found[: place // PAGE] == before[: place // PAGE]).all()
        seen.update(found[place // PAGE :].tolist())
    assert len(seen) == 10 + sum(10 - place // PAGE for place in range(10 * PAGE))
    assert not seen & set(prints.of(Namespace("n"), path).tolist())
    assert not seen & set(Fingerprints(PAGE).of(space, path).tolist()), "drawn anew for each cache"
    assert len(prints.of(space, path[: PAGE - 1])) == 0
