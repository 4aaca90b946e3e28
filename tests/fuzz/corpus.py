"""Inputs that once felled a core or were close to it, by what is wrong with them."""

from __future__ import annotations

import struct


def framed(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


CORPUS: dict[str, bytes] = {
    "opaque beyond 64 bits": framed(b'{"code":99,"opaque":%d}' % 10**30),
    "code beyond 64 bits": framed(b'{"code":%d,"opaque":1}' % 10**30),
    "flag beyond 64 bits": framed(b'{"code":34,"opaque":1,"flag":%d}' % 10**30),
    "opaque just beyond 64 bits": framed(b'{"code":99,"opaque":99999999999999999999}'),
    "opaque beyond 32 bits": framed(b'{"code":99,"opaque":%d}' % (1 << 40)),
    "header nested deeply": framed(b'{"code":34,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "header nested deeply and cut": framed(b'{"code":34,"x":' + b"[" * 100_000),
    "body nested deeply": framed(b'{"code":34,"opaque":1}', b"[" * 200_000),
    "body nested deeply in objects": framed(b'{"code":34,"opaque":1}', b'{"x":' * 200_000),
    "text that is no UTF-8": framed(b'{"code":34,"remark":"\xff"}'),
    "half a surrogate pair": framed(
        b'{"code":310,"opaque":1,"extFields":{"b":"T\\ud800","e":"0","f":"0","g":"1"}}', b"x"
    ),
    "empty header": framed(b""),
    "binary header that ends in its fields": framed(bytes(13) + b"\0\0\0\0\0\0\0\x09", kind=1),
    "topic with very many queues": framed(
        b'{"code":17,"opaque":1,"extFields":{"topic":"Wide","perm":"6",'
        b'"readQueueNums":"2000000000","writeQueueNums":"2000000000"}}'
    )
    + framed(b'{"code":202,"opaque":2,"extFields":{"topic":"Wide"}}'),
    "batch with the flag of a half": framed(
        b'{"code":320,"opaque":1,"extFields":{"a":"PG","b":"T","c":"TBW102","d":"4","e":"0",'
        b'"f":"4","g":"1","h":"0","i":"","j":"0","k":"false","m":"true"}}',
        struct.pack(">IIIIIxH", 23, 0, 0, 0, 1, 0),
    ),
    "body of a decision nested deeply": framed(
        b'{"code":7709,"opaque":1}', b'{"group":"g","epoch":"q/1","tokens":' + b"[" * 5_000
    ),
    "body of an operator nested deeply": framed(b'{"code":7701,"opaque":1}', b'{"x":' * 5_000),
    "reset of a queue beyond all": framed(
        b'{"code":222,"opaque":1,"extFields":{"topic":"T","group":"CG","timestamp":"-1",'
        b'"queueId":"99999999999"}}'
    ),
}
