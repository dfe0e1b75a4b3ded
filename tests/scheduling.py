"""How pytest-xdist distributes the tests: in groups, and past tests that end their worker."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadGroupScheduling


class Scheduler(LoadGroupScheduling):
    """`--dist loadgroup`, in which a test that ends its worker fails once, and the rest of its group still runs.

    pytest-xdist 3.8 runs such a test again with its group, which ends the next worker. It also sends finished groups to
    the new worker, which then waits forever for something to do.
    """

    def remove_node(self, node: Any) -> str | None:
        """Return the test that ended a worker, and queue the tests that the worker has not started."""
        groups = self.assigned_work[node]
        crashed = next((test for group in groups.values() for test, is_done in group.items() if not is_done), None)
        for name, group in list(groups.items()):
            if crashed in group:
                group[crashed] = True
            if all(group.values()):
                del groups[name]
        super().remove_node(node)
        return crashed
