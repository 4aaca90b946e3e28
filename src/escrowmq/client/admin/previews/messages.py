"""Previews of messages that operators send, resend, or have consumed."""

from __future__ import annotations

from escrowmq.client.admin.admin import Admin
from escrowmq.client.admin.cluster_calls import ClusterCalls
from escrowmq.client.admin.messages import resend_topic
from escrowmq.client.admin.previews.preview import ROWS_MAX, Preview, PreviewRow
from escrowmq.client.core.message import Message, ReceivedMessage
from escrowmq.client.core.validation import check_topic
from escrowmq.errors import ConsumerOffline, TopicNotFound


async def send(admin: Admin, message: Message) -> Preview:
    """Preview `admin.messages.send`."""
    return await _preview_send(admin, message.topic, len(message.body), "A message")


async def resend(admin: Admin, message: ReceivedMessage, *, topic: str = "") -> Preview:
    """Preview `admin.messages.resend`."""
    target = topic or resend_topic(ClusterCalls(admin.instance), message)
    return await _preview_send(admin, target, len(message.body), f"A copy of {message.message_id}")


async def deliver(admin: Admin, message: ReceivedMessage, *, group: str, client_id: str) -> Preview:
    """Preview `admin.messages.deliver`. Raises ConsumerOffline if the client is not
    connected."""
    members = (await admin.groups.members(group)).members
    if client_id not in {one.client_id for one in members}:
        names = ", ".join(one.client_id for one in members) or "nobody"
        raise ConsumerOffline(
            f"{client_id!r} is not a connected member of {group}; connected: {names}"
        )
    return Preview(
        said=f"{client_id} would consume {message.message_id} now. The offsets of {group} would "
        "stay.",
        count=1,
    )


async def _preview_send(admin: Admin, topic: str, size: int, what: str) -> Preview:
    check_topic(topic)
    said = f"{what} of {size} bytes would be sent to {topic}"
    try:
        groups = (await admin.topics.describe(topic)).groups
    except TopicNotFound:
        said += ", which does not exist: it is refused where brokers make no topics by themselves."
        return Preview(said=said, count=1)
    return Preview(
        said=f"{said}, as a new message that every group of it sees ({len(groups)} now).",
        count=1,
        rows=[PreviewRow(what=f"group {one}", after="gets it") for one in groups[:ROWS_MAX]],
    )
