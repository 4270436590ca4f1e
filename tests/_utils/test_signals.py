"""The first Ctrl-C or SIGTERM is a request; what was there before comes back."""

import os
import signal

import pytest

from nerve._utils.signals import stop_requests


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_handler_before_comes_back(number):
    before = signal.getsignal(number)
    with stop_requests(True) as received:
        assert received == []
        os.kill(os.getpid(), number)
        assert received == [number]
        assert signal.getsignal(number) == before  # a second one does what it always did
    assert signal.getsignal(number) == before


def test_signals_are_left_alone_where_stopping_is_not_enabled():
    before = signal.getsignal(signal.SIGINT)
    with stop_requests(False):
        assert signal.getsignal(signal.SIGINT) == before
