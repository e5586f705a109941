"""Turns: one at a time, in the order of coming, and whoever gives up is not waited for."""

import threading
import time

import pytest

from pot_agent.policy.turns import Turns


class GaveUpError(Exception):
    """A caller that waits no longer."""


def wait_for(turns: Turns, count: int) -> None:
    while len(turns) < count:
        time.sleep(0.001)


def test_one_is_inside_at_a_time_and_those_who_wait_enter_in_order() -> None:
    turns, inside, order = Turns(), [], []

    def work(name: int) -> None:
        with turns.taken():
            inside.append(name)
            assert inside == [name]
            order.append(name)
            inside.remove(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(5)]
    with turns.taken():
        for at, thread in enumerate(threads):
            thread.start()
            wait_for(turns, at + 2)
        assert order == []
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]


def test_who_gives_up_leaves_the_line_and_the_next_enters() -> None:
    turns, given_up, entered = Turns(), threading.Event(), threading.Event()

    def check() -> None:
        if given_up.is_set():
            raise GaveUpError

    def leave() -> None:
        with pytest.raises(GaveUpError), turns.taken(check):
            pass

    def enter() -> None:
        with turns.taken():
            entered.set()

    first, second = threading.Thread(target=leave), threading.Thread(target=enter)
    with turns.taken():
        first.start()
        wait_for(turns, 2)
        second.start()
        wait_for(turns, 3)
        given_up.set()
        first.join()
        assert len(turns) == 2
        assert not entered.is_set()
    second.join()
    assert entered.is_set()
    assert len(turns) == 0


def test_a_turn_ends_with_an_error_too() -> None:
    turns = Turns()
    with pytest.raises(GaveUpError), turns.taken():
        raise GaveUpError
    with turns.taken():
        pass
