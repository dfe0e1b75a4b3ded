"""A test that ends its worker fails once; the rest of its group runs, and finished groups do not run again."""

from types import SimpleNamespace

import pytest

pytest.importorskip("xdist", reason="pytest-xdist is not installed")

from tests.scheduling import Scheduler

TESTS = ["a.py::1@a", "a.py::2@a", "b.py::1@b", "b.py::2@b", "b.py::3@b", "b.py::4@b", "b.py::5@b"]


class Worker:
    """A stand-in that records the tests that it is asked to run."""

    shutting_down = False

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name, spec=name)
        self.asked: list[str] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.asked += [TESTS[index] for index in indices]

    def shutdown(self) -> None:
        self.shutting_down = True


def start(scheduler: Scheduler, *workers: Worker) -> None:
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, TESTS)
    scheduler.schedule()


@pytest.fixture
def scheduler() -> Scheduler:
    option = SimpleNamespace(loadscopereorder=True)
    return Scheduler(SimpleNamespace(getvalue=lambda name: ["popen"], option=option, maxfail=0))


def test_the_rest_of_the_group_runs_once(scheduler):
    first, second = Worker("1"), Worker("2")
    start(scheduler, first)
    for done in range(6):
        scheduler.mark_test_complete(first, TESTS.index(first.asked[done]))
    assert first.asked == TESTS[2:] + TESTS[:2]  # the larger group first
    assert scheduler.remove_node(first) == "a.py::2@a"
    start(scheduler, second)
    assert second.asked == []
    assert scheduler.tests_finished


def test_finished_tests_and_groups_do_not_run_again(scheduler):
    first, second = Worker("1"), Worker("2")
    start(scheduler, first)
    scheduler.mark_test_complete(first, TESTS.index("b.py::1@b"))
    assert scheduler.remove_node(first) == "b.py::2@b"
    start(scheduler, second)
    for done in range(5):
        scheduler.mark_test_complete(second, TESTS.index(second.asked[done]))
    assert sorted(second.asked) == ["a.py::1@a", "a.py::2@a", "b.py::3@b", "b.py::4@b", "b.py::5@b"]


def test_a_worker_that_ends_between_tests_fails_none(scheduler):
    first = Worker("1")
    start(scheduler, first)
    for done in range(len(TESTS)):
        scheduler.mark_test_complete(first, TESTS.index(first.asked[done]))
    assert scheduler.remove_node(first) is None
