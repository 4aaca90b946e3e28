"""Generated from health.proto by `make protos`; not to be edited."""

from base64 import b85decode

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.internal import enum_type_wrapper
from google.protobuf.message_factory import GetMessageClass

_SET = b85decode(
    b'3cCXe3}|IxY;<TYaB^>SZxRk?a&TiVXk}q+bZ9PiF(NJs5=doXY;<TtXk}w-Qe|;<Wpi{A7zzh-WpZ|DV`UftAOR=|'
    b'QU`Noa&~EBWg@Ww3KK|WVQh40Luh4VYf@!%aBpsNWfDmW26J>_baitW0U!Y=4l*$=XL4|3E@)+8Y;<TYb}=qUWnpY|'
    b'XhUdaV{1}nb8v5Nb7d}5WpZ|DZf8?;VRUtKQU-H$VRUtKB2NkpQ)O~?X>MmzbYXOLa}o;*2USi>PES`(5C9Sj3I|g~'
    b'QdUV$M-TxL4+;xTPgGx1MN(EtPDc;|5)%p!Q$<o%Nkc_nRZdGzPghP512V1w3I<4JVQh405>N^SLuh4VYZ4+ZXL4|3'
    b'E@)+8Y;<TYb}=qUWnpY|XhUdaV{1}nadl;LbQ&WrXL4|3E@)+8Y;<TYb}=qUWnpY|XhUdaV{1}nb8v5Nb7c}z3I$hT'
    b'bYo}|A}(igaAPiLWnpY|XfAd!E=XlzY;<TtXk}w-Qe|;<Wpi{IBQ9rhaAPiLWnpY|XfAd!E=XlzY;<TtXk}w-Qe|^+'
    b'Z*FsCFacr)aB^>SZ!-'
)

POOL = descriptor_pool.DescriptorPool()
for _file in descriptor_pb2.FileDescriptorSet.FromString(_SET).file:
    POOL.Add(_file)
_own = POOL.FindFileByName("health.proto")
DESCRIPTOR = _own
for _name, _message in _own.message_types_by_name.items():
    globals()[_name] = GetMessageClass(_message)
for _name, _enum in _own.enum_types_by_name.items():
    globals()[_name] = enum_type_wrapper.EnumTypeWrapper(_enum)
    globals().update({_value.name: _value.number for _value in _enum.values})
