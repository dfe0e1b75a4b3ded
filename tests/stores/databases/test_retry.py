"""Transient errors are retried a limited number of times, permanent ones never."""

import pytest

from isoscope.stores.databases import base
from isoscope.stores.databases.base import retry


class Flaky:
    def __init__(self, failures, error=ConnectionError):
        self.calls, self._failures, self._error = 0, failures, error

    def __call__(self):
        self.calls += 1
        if self.calls <= self._failures:
            raise self._error(self.calls)
        return "answer"


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    slept = []
    monkeypatch.setattr(base.time, "sleep", slept.append)
    return slept


def passes(error):
    return isinstance(error, ConnectionError)


@pytest.mark.parametrize("failures", range(len(base.PAUSES) + 1))
def test_retries_until_success_with_growing_pauses(failures, pauses):
    assert retry(Flaky(failures), passes) == "answer"
    assert pauses == list(base.PAUSES[:failures])
    assert pauses == sorted(pauses)


def test_last_failure_is_raised():
    attempt = Flaky(1000)
    with pytest.raises(ConnectionError, match=str(len(base.PAUSES) + 1)):
        retry(attempt, passes)
    assert attempt.calls == len(base.PAUSES) + 1


def test_permanent_errors_are_not_retried(pauses):
    attempt = Flaky(1, PermissionError)
    with pytest.raises(PermissionError):
        retry(attempt, passes)
    assert attempt.calls == 1
    assert pauses == []
