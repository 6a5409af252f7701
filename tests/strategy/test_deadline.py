"""Waits end when they must, and hand on what came."""

import threading

import pytest

from keras_tpu_kit.strategy.deadline import Deadline


class Clock:
    """A clock that goes on only while somebody sleeps by it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_retry_until_something_comes():
    clock = Clock()
    answers = iter([None, None, "yes"])
    assert Deadline(10, clock, clock.sleep).retry(lambda left: next(answers), pause=2) == "yes"
    assert clock.now == 4


def test_retry_gives_up_at_the_deadline_and_tells_each_attempt_what_is_left():
    clock = Clock()
    seen = []
    assert Deadline(5, clock, clock.sleep).retry(seen.append, pause=2) is None
    assert seen == [5, 3, 1]


def test_retry_tries_once_even_without_time():
    assert Deadline(0).retry(lambda left: "now") == "now"


def test_within_returns_raises_or_gives_up():
    assert Deadline(60).within(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        Deadline(60).within(lambda: 1 // 0)
    release = threading.Event()
    with pytest.raises(TimeoutError, match=r"0\.05 s"):
        Deadline(0.05).within(release.wait)
    release.set()
