"""Who is let in to the profile server: fairness by address, quotas per board."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.host.fleet.profiles.admission import Crowd, Known, Quota


@dataclass(eq=False)
class Client:
    ended: bool = False

    def end(self) -> None:
        self.ended = True


def test_an_address_with_many_connections_delays_itself_only() -> None:
    crowd: Crowd[Client] = Crowd(100, Known())
    flood, good = [Client() for _ in range(50)], Client()
    for client in flood:
        crowd.enter("evil", client)
    crowd.enter("good", good)
    assert [crowd.take(False) for _ in range(3)] == [flood[0], good, flood[1]]
    while crowd.take(False) is not None:
        pass


def test_the_oldest_of_the_most_crowded_address_makes_room() -> None:
    crowd: Crowd[Client] = Crowd(3, Known())
    flood, good = [Client() for _ in range(5)], Client()
    crowd.enter("good", good)
    for client in flood:
        crowd.enter("evil", client)
    assert [client.ended for client in flood] == [True, True, True, False, False]
    assert not good.ended
    crowd.leave("good", good)
    crowd.leave("good", good)
    assert crowd.take(False) is flood[3]


def test_addresses_of_boards_have_turns_of_their_own_and_make_room_last() -> None:
    known = Known()
    known.add("home")
    crowd: Crowd[Client] = Crowd(6, known)
    strangers, boards = [Client() for _ in range(4)], [Client() for _ in range(3)]
    for number, client in enumerate(strangers):
        crowd.enter(f"{number}", client)
    for client in boards:
        crowd.enter("home", client)
    assert strangers[0].ended and not any(client.ended for client in boards)
    assert [crowd.take(True) for _ in range(4)] == [*boards, None]
    assert [crowd.take(False) for _ in range(4)] == [*strangers[1:], None]
    assert not crowd
    known.discard("home")
    assert "home" not in known


def test_a_quota_is_per_key_and_comes_back_with_time() -> None:
    now = [1000.0]
    quota = Quota(3, 0.5, lambda: now[0])
    assert [quota.wait("x") for _ in range(5)] == [0, 0, 0, 2, 2]
    assert quota.wait("y", 3) == 0
    assert quota.wait("y", 1) == 2
    now[0] += 2
    assert [quota.wait("x") for _ in range(2)] == [0, 2]


def test_a_quota_forgets_keys_that_are_full_again() -> None:
    now = [0.0]
    quota = Quota(1, 1.0, lambda: now[0])
    for number in range(40_000):
        now[0] += 1
        assert quota.wait(f"{number}") == 0
    assert len(quota._full) < 20_000


def test_a_charge_may_exceed_a_quota() -> None:
    now = [1000.0]
    quota = Quota(2, 0.5, lambda: now[0])
    quota.charge("a", 1.5)
    assert not quota.is_used_up("a")
    quota.charge("a", 1.5)
    assert quota.is_used_up("a") and not quota.is_used_up("b")
    now[0] += 2.5
    assert not quota.is_used_up("a")
