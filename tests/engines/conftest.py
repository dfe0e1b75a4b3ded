"""A real cluster: a scheduler and two workers, each a process of its own."""

from contextlib import suppress

import pytest


@pytest.fixture(scope="module")  # not longer: it shares its event loop with clusters that end before
def client():
    distributed = pytest.importorskip("distributed", reason='Dask is not installed: pip install "isoscope[dask]"')
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0")
    client = distributed.Client(cluster, set_as_default=False)
    yield client
    with suppress(TimeoutError):  # a worker that does not end is not waited for: it ends with this process
        client.close(timeout=20)
        cluster.close(timeout=40)
