from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.effects import Effect
from penstock.coordinator.timers import Timers


def nothing(now_ms: int) -> list[Effect]:
    return []


steps = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), st.sampled_from("abc"), st.integers(0, 20)),
        st.tuples(st.just("cancel"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("pop"), st.just(""), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(steps)
def test_timers_come_up_once_and_in_order_of_their_latest_deadlines(steps: list[tuple[str, str, int]]) -> None:
    timers = Timers()
    deadlines: dict[str, int] = {}
    for what, key, time_ms in steps:
        if what == "schedule":
            timers.schedule(key, time_ms, nothing)
            deadlines[key] = time_ms
        elif what == "cancel":
            timers.cancel(key)
            deadlines.pop(key, None)
        else:
            popped = timers.pop_due(time_ms)
            gone = [key for key in deadlines if key not in timers]
            first_ms = min(deadlines.values(), default=time_ms + 1)
            assert (popped is not None) == (first_ms <= time_ms)
            assert [deadlines.pop(key) for key in gone] == ([first_ms] if popped is not None else [])
        assert timers.next_deadline_ms() == min(deadlines.values(), default=None)
