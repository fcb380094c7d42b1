"""The commands of quorum scenarios, and how what members do is told in text.

    members VOTER ... [observers=ID,...] [static]    before anything else; static: kraft.version 0
    start [ID ...]
    crash ID                what was not synced is lost
    run MS                  lets time pass
    propose ID VALUE
    isolate ID              nobody hears it, it hears nobody
    cut A B                 from A to B; the other way stays
    heal
    pause ID MS             as a process that is stopped
    snapshot ID             of what it has applied; its log then begins there
    add LEADER ID, remove LEADER ID
    move ID                 comes back at another address
    resign ID, stop ID      stop: hands over, and stands no more
    describe ID
    state [ID ...]

Told are changes of role, what is persisted and committed, and messages of elections; fetches are not.
"""

import inspect
from typing import Any

from penstock.cluster.raft import Role, rpc
from penstock.cluster.raft import effects as raft_effects
from tests.unit.raft.checkers import Checkers
from tests.unit.raft.cluster import CLUSTER_ID, Cluster, Member, Weather, key, voter

Options = dict[str, str]


class Script:
    def __init__(self) -> None:
        self._cluster = Cluster(1, [1, 2, 3])
        self._told: list[str] = []
        self._roles: dict[int, tuple[Role, int] | None] = {}
        self._client: dict[int, str] = {}

    def run(self, line: str) -> str:
        """Runs a command and tells what the members did."""
        name, *words = line.split()
        options = {one: value for one, _, value in (word.partition("=") for word in words if "=" in word)}
        plain = [word for word in words if "=" not in word]
        self._told = []
        command = getattr(self, f"do_{name}")
        takes_options = "options" in inspect.signature(command).parameters
        lines = command(*plain, **({"options": options} if takes_options else {}))
        self._note_roles()
        return "\n".join([*self._told, *(lines or [])]) or "(nothing)"

    def do_members(self, *words: str, options: Options) -> None:
        voters = [int(word) for word in words if word != "static"]
        observers = [int(word) for word in options.get("observers", "").split(",") if word]
        self._cluster = Cluster(1, voters, observers, kraft_version=0 if "static" in words else 1)
        self._cluster.weather = Weather(delay_ms_max=1, sync_ms_max=1)
        self._checkers = Checkers(self._cluster)
        self._cluster.observers.append(self._tell)

    def do_start(self, *ids: str) -> None:
        self._cluster.start(*map(int, ids))

    def do_crash(self, node: str) -> None:
        self._cluster.crash(int(node), lambda count: 0)

    def do_run(self, duration_ms: str) -> None:
        end_ms = self._cluster.now_ms + int(duration_ms)
        while self._cluster.next_ms() <= end_ms:
            self._cluster.step()
            self._checkers.check()
            self._note_roles()
        self._cluster.now_ms = end_ms

    def do_propose(self, node: str, value: str) -> list[str]:
        end_offset = self._cluster.propose(int(node), value.encode())
        return ["refused: it does not lead" if end_offset is None else f"decided when committed up to {end_offset}"]

    def do_isolate(self, node: str) -> None:
        self._cluster.isolate(int(node))

    def do_cut(self, source: str, target: str) -> None:
        self._cluster.block(int(source), int(target))

    def do_heal(self) -> None:
        self._cluster.heal()

    def do_pause(self, node: str, duration_ms: str) -> None:
        self._cluster.members[int(node)].paused_until_ms = self._cluster.now_ms + int(duration_ms)

    def do_snapshot(self, node: str) -> list[str]:
        snapshot_id = self._cluster.take_snapshot(int(node))
        return ["nothing to take" if snapshot_id is None else f"snapshot {_end(snapshot_id)}"]

    def do_add(self, leader: str, node: str) -> None:
        request = rpc.AddVoterRequest(CLUSTER_ID, key(int(node)), voter(int(node)).endpoints)
        self._ask(int(leader), request, f"add {node}")

    def do_remove(self, leader: str, node: str) -> None:
        self._ask(int(leader), rpc.RemoveVoterRequest(CLUSTER_ID, key(int(node))), f"remove {node}")

    def do_move(self, node: str) -> None:
        self._cluster.move(int(node))

    def do_resign(self, node: str) -> None:
        self._cluster.call(int(node), lambda quorum: quorum.resign(quorum.epoch, self._cluster.now_ms))

    def do_stop(self, node: str) -> None:
        self._cluster.call(int(node), lambda quorum: quorum.shut_down(self._cluster.now_ms))

    def do_describe(self, node: str) -> list[str]:
        token = self._cluster.ask(int(node), rpc.DescribeQuorumRequest())
        response: Any = self._cluster.answers.pop(token)
        voters = " ".join(f"{one.replica.id}:{one.log_end_offset}" for one in response.voters)
        observers = " ".join(f"{one.replica.id}:{one.log_end_offset}" for one in response.observers)
        return [
            f"{response.error.name} leader={response.leader.leader_id} epoch={response.leader.epoch} "
            f"committed={response.high_watermark} voters=[{voters}] observers=[{observers}]"
        ]

    def do_state(self, *ids: str) -> list[str]:
        return [self._state(self._cluster.members[int(node)]) for node in ids or map(str, self._cluster.members)]

    @staticmethod
    def _state(member: Member) -> str:
        quorum = member.quorum
        if quorum is None:
            return f"{member.id}: down, log {member.log.start_offset}..{member.log.end_offset}"
        may_stop = " may-stop" if quorum.may_stop else ""
        return (
            f"{member.id}: {quorum.role.value}{' (observer)' if quorum.is_observer else ''} epoch={quorum.epoch} "
            f"leader={quorum.leader_id} committed={quorum.high_watermark} "
            f"log={member.log.start_offset}..{member.log.end_offset}@{member.log.last_epoch} "
            f"voters={quorum.voters.ids}{may_stop}"
        )

    def _ask(self, node: int, request: rpc.Request, name: str) -> None:
        token = self._cluster.ask(node, request)
        response: Any = self._cluster.answers.pop(token, None)
        if response is None:
            self._client[token] = name
        else:
            self._told.append(f"client <- {name}: {response.error.name} {response.message or ''}".rstrip())

    def _note_roles(self) -> None:
        for member in self._cluster.members.values():
            quorum = member.quorum
            role = None if quorum is None else (quorum.role, quorum.epoch)
            if role != self._roles.get(member.id):
                self._roles[member.id] = role
                if role is None:
                    self._say(member, "is down")
                else:
                    self._say(member, f"is {role[0].value} in {role[1]}")

    def _say(self, member: Member, text: str) -> None:
        self._told.append(f"{self._cluster.now_ms:>5} {member.id} {text}")

    def _tell(self, member: Member, effect: raft_effects.Effect) -> None:
        match effect:
            case raft_effects.Persist(state):
                vote = f" vote={state.voted_id}" if state.voted_id >= 0 else ""
                leader = f" leader={state.leader_id}" if state.leader_id >= 0 else ""
                self._say(member, f"persists epoch={state.epoch}{vote}{leader}")
            case raft_effects.Send(node, _, request):
                told = _request(request)
                if told:
                    self._say(member, f"-> {node.id} {told}")
            case raft_effects.Answer(token, response):
                asked = member.asked.get(token)
                told = _response(response)
                if asked is None:
                    told = f"{response.error.name} {getattr(response, 'message', None) or ''}".rstrip()
                    if token in self._client:
                        self._told.append(f"client <- {self._client.pop(token)}: {told}")
                elif told:
                    self._say(member, f"-> {asked.source} {told}")
            case raft_effects.Committed(high_watermark):
                self._say(member, f"has committed up to {high_watermark}")
            case raft_effects.Leading(epoch):
                self._say(member, f"serves in {epoch}")
            case raft_effects.StoppedLeading(epoch):
                self._say(member, f"serves no more in {epoch}")
            case raft_effects.SnapshotInstalled(snapshot_id):
                self._say(member, f"loads the snapshot {_end(snapshot_id)}")
            case raft_effects.Fault(message):
                self._say(member, f"complains: {message}")


def _end(end: rpc.OffsetAndEpoch) -> str:
    return f"{end.offset}@{end.epoch}"


def _request(request: rpc.Request) -> str | None:
    match request:
        case rpc.VoteRequest():
            kind = "pre-vote?" if request.pre_vote else "vote?"
            return f"{kind} epoch={request.replica_epoch} log={_end(request.last)}"
        case rpc.BeginQuorumEpochRequest():
            return f"begin epoch={request.leader_epoch}"
        case rpc.EndQuorumEpochRequest():
            return f"end epoch={request.leader_epoch} next={[one.id for one in request.preferred_candidates]}"
        case rpc.FetchSnapshotRequest():
            return f"fetch snapshot {_end(request.snapshot_id)} from byte {request.position}"
        case rpc.UpdateVoterRequest():
            return f"my address is {request.endpoints[0].host}:{request.endpoints[0].port}"
    return None


def _response(response: rpc.Response) -> str | None:
    match response:
        case rpc.VoteResponse():
            granted = "yes" if response.vote_granted else "no"
            return granted if response.error.name == "none" else f"{granted}: {response.error.name}"
        case rpc.FetchResponse(diverging=rpc.OffsetAndEpoch() as diverging):
            return f"your log parts from mine at {_end(diverging)}"
        case rpc.FetchResponse(snapshot_id=rpc.OffsetAndEpoch() as snapshot_id):
            return f"take the snapshot {_end(snapshot_id)}"
    return None
