"""`escrowmq message`: find messages and send them again."""

from __future__ import annotations

import argparse
import base64
from typing import TYPE_CHECKING, Final

from escrowmq.base.human_format import format_moment
from escrowmq.cli.cluster_verbs import OK, REFUSED, add_action, print_change, run_action
from escrowmq.cli.dry_run import add_dry_run_option, call_preview, print_preview
from escrowmq.cli.printing import print_error_line, print_json, print_line
from escrowmq.cli.times import parse_count, parse_whole

if TYPE_CHECKING:
    from escrowmq.client.blocking.admin import Admin
    from escrowmq.client.core.message import Message, ReceivedMessage

_BODY_SHOWN_MAX: Final = 200


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions and options to its parser."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = add_action(actions, "show", "show one message")
    resend = add_action(actions, "resend", "send a copy of a message, for all groups")
    resend.add_argument(
        "--to", default="", metavar="TOPIC", help="send to this topic instead of its own"
    )
    deliver = add_action(actions, "deliver", "let one member of a group consume a message now")
    deliver.add_argument("--group", required=True)
    deliver.add_argument("--client", required=True, metavar="CLIENT_ID")
    explain = add_action(
        actions, "explain", "say what became of a message: pending, delayed, consumed, dead, ..."
    )
    for one in (show, explain, resend, deliver):
        one.add_argument("id", metavar="ID", help="a message's id (with --topic) or offset id")
        one.add_argument("--topic", default="")
    find = add_action(actions, "find", "find messages by a key")
    find.add_argument("topic", metavar="TOPIC")
    find.add_argument("key", metavar="KEY")
    find.add_argument(
        "--limit", type=parse_count, default=64, help="maximum number of messages (default 64)"
    )
    at = add_action(actions, "at", "show messages of a queue")
    at.add_argument("topic", metavar="TOPIC")
    at.add_argument("broker", metavar="BROKER")
    at.add_argument("queue", metavar="QUEUE", type=parse_whole)
    at.add_argument("offset", metavar="OFFSET", type=parse_whole)
    at.add_argument(
        "--limit", type=parse_count, default=1, help="maximum number of messages (default 1)"
    )
    send = add_action(actions, "send", "send a message")
    send.add_argument("topic", metavar="TOPIC")
    send.add_argument("body", metavar="BODY")
    send.add_argument("--tag", default="")
    send.add_argument("--key", action="append", default=[], help="may be repeated")
    add_dry_run_option(resend, deliver, send)


def run(arguments: argparse.Namespace) -> int:
    """Run the verb's action; return the exit code."""
    return run_action(arguments, lambda admin: _run(admin, arguments))


def _run(admin: Admin, arguments: argparse.Namespace) -> int:
    from escrowmq.client.core.routes import MessageQueue

    messages = admin.messages
    match arguments.action:
        case "show":
            _print_message(messages.get(arguments.id, topic=arguments.topic), arguments)
        case "explain":
            _print_explanation(admin, arguments)
        case "find":
            several = messages.find(arguments.topic, arguments.key, count_max=arguments.limit)
            return _print_messages(
                several, arguments, f"no message of {arguments.topic} has that key"
            )
        case "at":
            queue = MessageQueue(arguments.topic, arguments.broker, arguments.queue)
            several = messages.at(queue, arguments.offset, count_max=arguments.limit)
            return _print_messages(several, arguments, "no message is there")
        case _ if arguments.dry_run:
            return _run_preview(admin, arguments)
        case "send":
            sent = messages.send(_make_message(arguments))
            return print_change(arguments, {"messageId": sent.message_id}, sent.message_id)
        case "resend":
            found = messages.get(arguments.id, topic=arguments.topic)
            sent = messages.resend(found, topic=arguments.to)
            return print_change(arguments, {"messageId": sent.message_id}, sent.message_id)
        case _:
            found = messages.get(arguments.id, topic=arguments.topic)
            messages.deliver(found, group=arguments.group, client_id=arguments.client)
            return print_change(arguments, {"consumed": True}, "consumed")
    return OK


def _make_message(arguments: argparse.Namespace) -> Message:
    from escrowmq.client.core.message import Message

    body = arguments.body.encode()
    return Message(arguments.topic, body, tag=arguments.tag, keys=arguments.key)


def _run_preview(admin: Admin, arguments: argparse.Namespace) -> int:
    from escrowmq.client.admin.previews import messages as previews

    if arguments.action == "send":
        return print_preview(
            arguments, call_preview(admin, previews.send, _make_message(arguments))
        )
    message = admin.messages.get(arguments.id, topic=arguments.topic)
    if arguments.action == "resend":
        found = call_preview(admin, previews.resend, message, topic=arguments.to)
    else:
        group, client = arguments.group, arguments.client
        found = call_preview(admin, previews.deliver, message, group=group, client_id=client)
    return print_preview(arguments, found)


def _print_explanation(admin: Admin, arguments: argparse.Namespace) -> None:
    found = admin.diagnosis.message(arguments.id, topic=arguments.topic)
    if arguments.json:
        print_json(found)
        return
    print_line(f"{found.message_id}: {found.state}")
    for fact in found.facts:
        print_line(f"  {fact}")
    for one in found.deliveries:
        print_line(f"  group {one.group}: {one.state}" + (f" ({one.detail})" if one.detail else ""))


def _print_messages(
    messages: list[ReceivedMessage], arguments: argparse.Namespace, otherwise: str
) -> int:
    """Print messages, or `otherwise` if there are none; return the exit code."""
    for message in messages:
        _print_message(message, arguments)
    if not messages:
        print_error_line(f"escrowmq message {arguments.action}: {otherwise}")
    return OK if messages else REFUSED


def _print_message(message: ReceivedMessage, arguments: argparse.Namespace) -> None:
    body, is_text = _decode_body(message.body)
    if arguments.json:
        print_json(
            {
                "messageId": message.message_id,
                "offsetId": message.offset_id,
                "topic": message.topic,
                "broker": message.broker_name,
                "queueId": message.queue_id,
                "queueOffset": message.queue_offset,
                "tag": message.tag,
                "keys": message.key_list,
                "properties": message.properties,
                "system": message.system,
                "bornMs": message.born_ms,
                "bornHost": message.born_host,
                "storedMs": message.stored_ms,
                "deliveriesBefore": message.deliveries_before,
                "body" if is_text else "bodyBase64": body,
            }
        )
        return
    print_line(
        message.message_id,
        message.topic,
        f"{message.broker_name}/{message.queue_id}@{message.queue_offset}",
        format_moment(message.stored_ms),
        f"tag={message.tag or '-'}",
        f"keys={' '.join(message.key_list) or '-'}",
        f"{len(message.body)} bytes",
    )
    for name, value in sorted(message.properties.items()):
        print_line(f"  {name}={value}")
    shown = body[:_BODY_SHOWN_MAX]
    print_line(f"  {shown!r}{'...' if len(body) > len(shown) else ''}")


def _decode_body(body: bytes) -> tuple[str, bool]:
    try:
        return body.decode(), True
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), False
