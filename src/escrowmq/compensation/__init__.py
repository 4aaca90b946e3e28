"""For brokers that do not ask back: commits that got lost are found by comparing sets, and redone.

The producer announces each commit in a topic of its own (`Announcer`). The consumer notes each
transactional message that it has consumed (`Worker`), and each announcement (`AnnouncementReader`),
in two sets of a Redis server (`RedisSets`). What was announced and not consumed are the commits
that the broker never heard of: `Compensator` looks up each message and has the business do it.
Nothing here is needed with brokers that check back; of the other rooms only commands know of it.
"""

from escrowmq.base.extras import require

require("compensation", "redis")

from escrowmq.client.announced_commits import Compared, Member, Sets
from escrowmq.client.lease_base import LeaseTaken
from escrowmq.compensation.announcing import Announcer
from escrowmq.compensation.consuming import AnnouncementReader, Business, Worker
from escrowmq.compensation.lease import RedisLease
from escrowmq.compensation.redis_sets import RedisSets
from escrowmq.compensation.repairing import Compensator, Fate, Finding, Report

__all__ = [
    "AnnouncementReader",
    "Announcer",
    "Business",
    "Compared",
    "Compensator",
    "Fate",
    "Finding",
    "LeaseTaken",
    "Member",
    "RedisLease",
    "RedisSets",
    "Report",
    "Sets",
    "Worker",
]
