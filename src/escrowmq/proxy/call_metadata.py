"""Reads from the header fields of a call which client makes it.

authorization: MQv2-HMAC-SHA1 Credential=<access key>[/...], SignedHeaders=x-mq-date-time,
               Signature=<hex of HMAC-SHA1 over the value of x-mq-date-time>
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from escrowmq.base.fixed_limits import CLIENT_ID_SIZE_MAX
from escrowmq.codec.binary_header import LANGUAGES
from escrowmq.proxy.gen import v2
from escrowmq.proxy.result_codes import CallFault

_AUTHORIZATION: Final = re.compile(
    r"MQv2-HMAC-SHA1\s+Credential=([^,/\s]*)[^,]*,\s*SignedHeaders=[^,]*,\s*Signature=([0-9A-Fa-f]*)"
)
_NAMES: Final = {"GOLANG": "GO", "DOT_NET": "DOTNET", "NODEJS": "NODE_JS"}


class CallCredential(msgspec.Struct, frozen=True):
    """A call's account and signature."""

    key: str
    signature: str
    """The signature in base64, as in the remoting protocol."""

    content: bytes


def read_client_id(metadata: Mapping[str, str]) -> str:
    """Return the client's id; raises a Fault if there is none."""
    found = metadata.get("x-mq-client-id", "")
    if not found.strip():
        raise CallFault(v2.CLIENT_ID_REQUIRED, "client id cannot be empty")
    if len(found) > CLIENT_ID_SIZE_MAX:
        raise CallFault(
            v2.CLIENT_ID_REQUIRED,
            f"a client id of {len(found)} characters; {CLIENT_ID_SIZE_MAX} are allowed",
        )
    return found


def read_language(metadata: Mapping[str, str]) -> str:
    """Return the client's language by RocketMQ's name for it; RocketMQ fails for an unknown one."""
    found = metadata.get("x-mq-language", "").upper()
    found = _NAMES.get(found, found)
    return found if found in LANGUAGES else "OTHER"


def read_credential(metadata: Mapping[str, str]) -> CallCredential | None:
    """Return the account and signature of a call; None if it names no account. (The Python client
    sends the field without an account, too.)"""
    found = _AUTHORIZATION.match(metadata.get("authorization", ""))
    if found is None or not found[1]:
        return None
    try:
        signature = base64.b64encode(bytes.fromhex(found[2])).decode()
    except (ValueError, binascii.Error):
        signature = ""
    return CallCredential(found[1], signature, metadata.get("x-mq-date-time", "").encode())
