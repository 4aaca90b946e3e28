"""Finds lost commits by comparing sets, and has them processed again; for brokers without
check-backs.

The producer announces each commit in a separate topic (`Announcer`). The consumer records each
transactional message that it has consumed (`Worker`), and each announcement (`AnnouncementReader`),
in two sets on a Redis server (`RedisSets`). Commits that were announced and not consumed never
reached the broker: `Compensator` looks up each message and has the business process it. With
brokers that check back, none of this is needed; of the other packages only the command line uses
it."""

from escrowmq.base.extras import require_extra

require_extra("compensation", "redis")

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
