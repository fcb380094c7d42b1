"""What a follower's session has to tell, and that it forgets nothing of it."""

from penstock.broker.fetch.following import FollowerNews
from penstock.testing.sim_disk import SimDisk
from tests.unit.partition.made import make_partition

A, B = (b"a", 0), (b"b", 0)


def test_a_watched_partition_has_news_when_it_says_so() -> None:
    news, partition = FollowerNews(), make_partition(SimDisk())
    news.watch(A, partition)
    assert news.take() == []
    partition.tell_replicas(100)
    partition.tell_replicas(0)
    assert news.take() == [A]
    assert news.take() == []


def test_only_bytes_wake_a_fetch_that_waits() -> None:
    news, partition = FollowerNews(), make_partition(SimDisk())
    woken: list[int] = []
    news.on_append = woken.append
    news.watch(A, partition)
    partition.tell_replicas(0)
    partition.tell_replicas(7)
    assert woken == [7]


def test_what_could_not_be_said_goes_first_the_next_time() -> None:
    news = FollowerNews()
    news.add(A)
    news.give_back([B])
    assert news.take() == [B, A]


def test_what_is_forgotten_or_over_is_watched_no_more() -> None:
    news, partition = FollowerNews(), make_partition(SimDisk())
    news.watch(A, partition)
    news.watch(A, partition)
    news.add(A)
    news.forget(A)
    assert partition.replica_listeners is None
    news.watch(B, partition)
    news.stop()
    assert partition.replica_listeners is None
    partition.tell_replicas(1)
    assert news.take() == []


def test_a_topic_that_was_made_again_is_watched_in_place_of_the_old_one() -> None:
    news, old, new = FollowerNews(), make_partition(SimDisk()), make_partition(SimDisk())
    news.watch(A, old)
    news.watch(A, new)
    assert old.replica_listeners is None
    new.tell_replicas(1)
    assert news.take() == [A]
