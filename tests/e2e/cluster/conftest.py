from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster.nodes import Cluster

MakeCluster = Callable[..., Cluster]


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[MakeCluster]:
    """Starts clusters of the test's own: `make_cluster({"name": "value"})`. Ends them, and checks that they end cleanly
    and met no defect."""
    made: list[Cluster] = []

    def make(settings: dict[str, str] | None = None) -> Cluster:
        cluster = Cluster(tmp_path / f"cluster-{len(made)}", settings)
        made.append(cluster)
        return cluster.start()

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster()
