"""Makes proxy/gen of the protos of proxy: the descriptors, in a pool of their own, and the types.

Google's generated modules put everything into one pool a process, where the official Python
client's own of the same names cannot stand beside ours.
"""

from __future__ import annotations

import sys
import tempfile
from base64 import b85encode
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

PROXY = Path(__file__).resolve().parent.parent / "src" / "escrowmq" / "proxy"
GOOGLE = str(Path(grpc_tools.__file__).parent / "_proto")
NAMES = ("v2", "health", "reflection")
WIDTH = 90

MODULE = '''"""Generated from {name}.proto by `make protos`; not to be edited."""

from base64 import b85decode

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.internal import enum_type_wrapper
from google.protobuf.message_factory import GetMessageClass

_SET = b85decode(
{lines}
)

POOL = descriptor_pool.DescriptorPool()
for _file in descriptor_pb2.FileDescriptorSet.FromString(_SET).file:
    POOL.Add(_file)
_own = POOL.FindFileByName("{name}.proto")
DESCRIPTOR = _own
for _name, _message in _own.message_types_by_name.items():
    globals()[_name] = GetMessageClass(_message)
for _name, _enum in _own.enum_types_by_name.items():
    globals()[_name] = enum_type_wrapper.EnumTypeWrapper(_enum)
    globals().update({{_value.name: _value.number for _value in _enum.values}})
'''


def main() -> int:
    """Write two files for each."""
    return max(make(name) for name in NAMES)


def make(name: str) -> int:
    """The module of one text, and its types."""
    with tempfile.TemporaryDirectory() as folder:
        described = Path(folder) / "set"
        code = protoc.main(
            [
                "protoc",
                f"-I{PROXY}",
                f"-I{GOOGLE}",
                "--include_imports",
                f"--descriptor_set_out={described}",
                f"--pyi_out={folder}",
                f"{name}.proto",
            ]
        )
        if code:
            return int(code)
        text = b85encode(described.read_bytes()).decode()
        parts = [text[at : at + WIDTH] for at in range(0, len(text), WIDTH)]
        lines = "\n".join(f"    b{part!r}" for part in parts)
        (PROXY / "gen" / f"{name}.py").write_text(MODULE.format(name=name, lines=lines))
        types = (Path(folder) / f"{name}_pb2.pyi").read_text()
        types = types.replace("\nDESCRIPTOR:", "\nPOOL: _pool.DescriptorPool\nDESCRIPTOR:", 1)
        types = "from google.protobuf import descriptor_pool as _pool\n" + types
        (PROXY / "gen" / f"{name}.pyi").write_text(types)
    return 0


if __name__ == "__main__":
    sys.exit(main())
