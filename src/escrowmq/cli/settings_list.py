"""`escrowmq broker --settings`: every setting with its default and effect."""

from __future__ import annotations

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.group_settings import GroupSettings
from escrowmq.base.nameserver_settings import NameServerGuardSettings, NameServerSettings
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.base.setting_facts import Setting, settings_of
from escrowmq.base.store_settings import StoreSettings
from escrowmq.cli.printing import print_line
from escrowmq.node.config import NodeSettings
from escrowmq.node.connection_settings import ConnectionSettings

_READ_ELSEWHERE = ("is_sync_flush", "memory_size")
_BY_REQUEST = (BrokerSettings, StoreSettings, ReplicaSettings)
_HOLDS = {
    "fixed": "in the file alone",
    "restart": "a change by request takes effect at the next start",
    "live": "a change by request takes effect at once",
}


def print_settings() -> int:
    """Print one line per setting, grouped by the server that reads it."""
    for title, kind in (
        ("process", NodeSettings),
        ("ports", ConnectionSettings),
        ("broker", BrokerSettings),
        ("store", StoreSettings),
        ("copies of the log", ReplicaSettings),
        ("member of a group", GroupSettings),
        ("name server", NameServerSettings),
        ("who may change a name server", NameServerGuardSettings),
    ):
        print_line(f"# {title}")
        for setting in settings_of(kind):
            if setting.field not in _READ_ELSEWHERE:
                print_line(_setting_line(setting, is_changed_by_request=kind in _BY_REQUEST))
    return 0


def _setting_line(setting: Setting, *, is_changed_by_request: bool) -> str:
    default = setting.default
    text = str(default).lower() if isinstance(default, bool) else str(default)
    about = [setting.description] if setting.description else []
    if setting.low is not None and setting.high is not None:
        about.append(f"{setting.low} to {setting.high}")
    elif setting.low is not None and setting.low > 0:
        about.append(f"at least {setting.low}")
    if is_changed_by_request:
        about.append(_HOLDS[setting.holds])
    return f"{setting.name}={text}" + (f"    # {'; '.join(about)}" if about else "")
