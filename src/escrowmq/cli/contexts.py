"""Named clusters: the address of each, and the account used there."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Final

import msgspec

from escrowmq.errors import UsageError

CONTEXT_ENV: Final = "ESCROWMQ_CONTEXT"
FILE_ENV: Final = "ESCROWMQ_CONTEXTS"


class Context(msgspec.Struct, omit_defaults=True):
    """Options that the command line takes from a context when they are not given."""

    name_servers: str = ""
    access_key: str = ""
    secret_key_file: str = ""
    """The file with the secret; the secret itself is never stored here."""
    namespace: str = ""
    tls: bool = False
    tls_trusted: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_any_name: bool = False
    tls_no_verify: bool = False


class Contexts(msgspec.Struct):
    """All contexts by name, and the current one."""

    current: str = ""
    contexts: dict[str, Context] = {}


def contexts_path() -> Path:
    """Return the path of the file of contexts."""
    chosen = os.environ.get(FILE_ENV)
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "escrowmq" / "contexts.json"


def load_contexts() -> Contexts:
    """Load the file of contexts; return no contexts if there is no file."""
    file = contexts_path()
    try:
        return msgspec.json.decode(file.read_bytes(), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; {FILE_ENV} names another file") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{file}: {error}; correct it, or delete it") from error


def save_contexts(known: Contexts) -> None:
    """Write the file of contexts atomically; only its owner can read it."""
    file = contexts_path()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = file.with_name(f"{file.name}.{os.getpid()}")
    text = json.dumps(msgspec.to_builtins(known), indent=2) + "\n"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
    new.replace(file)


def find_context(known: Contexts, name: str) -> Context:
    """Return the context with a name. Raises UsageError if there is none."""
    found = known.contexts.get(name)
    if found is None:
        names = ", ".join(sorted(known.contexts)) or "none"
        raise UsageError(f"no context {name!r}; known: {names} (`escrowmq context set` adds one)")
    return found


def fill_from_context(arguments: argparse.Namespace) -> None:
    """Fill missing options from the context that is named, or from the current one if no option
    names a cluster. A context's account is used only at the context's own cluster."""
    name = arguments.context or os.environ.get(CONTEXT_ENV, "")
    if name:
        context = find_context(load_contexts(), name)
    elif arguments.name_servers or os.environ.get("NAMESRV_ADDR"):
        return
    else:
        known = load_contexts()
        if not known.current:
            return
        context = find_context(known, known.current)
    if arguments.name_servers not in (None, "", context.name_servers):
        raise UsageError(
            f"-n {arguments.name_servers} and context {name or 'current'} name different clusters; "
            "give one of them"
        )
    for field in context.__struct_fields__:
        value = getattr(context, field)
        if value and not getattr(arguments, field):
            setattr(arguments, field, value)
