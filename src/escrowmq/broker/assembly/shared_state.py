"""The state that the parts of one broker share."""

from __future__ import annotations

from collections import Counter

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.ports import RandomSource
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.answers.answer_delivery import AnswerSender
from escrowmq.broker.answers.answer_frames import AnswerFrames
from escrowmq.broker.answers.request_times import RequestLatency
from escrowmq.broker.fast.batched_replies import BatchedReplies
from escrowmq.broker.identity import Identity
from escrowmq.broker.input_time import InputTime
from escrowmq.broker.outgoing_requests import PeerCalls
from escrowmq.broker.output import Output
from escrowmq.broker.peers import Peers
from escrowmq.broker.sends.shedding import LoadShedding
from escrowmq.delivery.auto_created import AutoCreateQuota, RequestAccount
from escrowmq.delivery.clients import Clients
from escrowmq.delivery.delay_queues import DelayQueues
from escrowmq.delivery.delayed_messages import DelayRules
from escrowmq.delivery.due_messages import DueMessages
from escrowmq.delivery.group_readers import GroupReaders
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.queue_locks import QueueLocks
from escrowmq.delivery.recent_pop_clients import RecentPopClients
from escrowmq.delivery.requesters import WaitingRequests
from escrowmq.delivery.stats import Stats
from escrowmq.delivery.timer import TimerQueue
from escrowmq.delivery.timer_quotas import TimerQuotas
from escrowmq.delivery.topics import TopicTable
from escrowmq.store.store import Store


class BrokerState:
    """The shared state of one broker. Only the core and the assembly get all of it; each part gets
    what it needs."""

    def __init__(
        self,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        store: Store,
        *,
        address: tuple[str, int],
        chance: RandomSource,
    ) -> None:
        self.settings = settings
        self.store_settings = store_settings
        self.store = store
        self.chance = chance
        self.identity = Identity(*address)
        self.moment = InputTime()
        self.shedding = LoadShedding(settings, self.moment)

        self.present = RequestAccount()
        self.topics = TopicTable(
            settings,
            made=AutoCreateQuota(
                self.present, most=settings.account_topics_max, setting="escrowAccountTopics"
            ),
        )
        self.groups = GroupTable(
            settings,
            made=AutoCreateQuota(
                self.present, most=settings.account_groups_max, setting="escrowAccountGroups"
            ),
        )
        self.offsets = OffsetTable(self.groups.made)
        self.clients = Clients(of_account_max=settings.account_memberships_max)
        self.poppers = RecentPopClients()
        self.readers = GroupReaders(self.clients, self.poppers)
        self.requesters = WaitingRequests()
        self.locks = QueueLocks()
        due = DueMessages(store, self.topics)
        self.delays = DelayQueues(store, store_settings, due.put)
        self.timer = TimerQueue(store, settings, due.put)
        self.timer_quotas = TimerQuotas(self.timer, store)
        self.delay_rules = DelayRules(store_settings, settings, self.timer_quotas.why_full)
        self.polls_counts: Counter[str] = Counter()
        """The number of waiting long polls of each account."""
        self.stats = Stats()

        self.calls = PeerCalls()
        self.peers = Peers(self.calls)
        self.frames = AnswerFrames(settings)
        self.output = Output()
        self.latency = RequestLatency()
        self.answers = AnswerSender(store.ends, self.moment, self.latency)
        self.run_answers = BatchedReplies(
            frames=self.frames,
            output=self.output,
            latency=self.latency,
            moment=self.moment,
            waiting=self.answers.waiting,
            ends=store.ends,
        )
