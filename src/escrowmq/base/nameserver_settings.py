"""Settings of a name server, and of its access control. As in base/broker_settings.py the keys are
RocketMQ's."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, field


class NameServerSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The settings of a name server (RocketMQ's NamesrvConfig)."""

    scan_interval_ms: Annotated[
        int, Meta(ge=10, description="interval of the scan for dead brokers")
    ] = field(default=5_000, name="scanNotActiveBrokerInterval")
    lists_all_topics: bool = field(default=True, name="enableAllTopicList")
    lists_topics: bool = field(default=True, name="enableTopicList")
    serves_order_conf: bool = field(default=False, name="orderMessageEnable")
    returns_order_conf: bool = field(default=True, name="returnOrderTopicConfigToBroker")
    has_acting_master: bool = field(default=False, name="supportActingMaster")
    notifies_min_id: bool = field(default=False, name="notifyMinBrokerIdChanged")
    waits_for_service: bool = field(default=False, name="needWaitForService")
    wait_seconds: Annotated[int, Meta(ge=0)] = field(default=45, name="waitSecondsForService")
    deletes_topics_on_register: bool = field(
        default=False, name="deleteTopicWithBrokerRegistration"
    )
    blacklist: Annotated[
        str, Meta(description="keys that no request may change, separated by `;`")
    ] = field(default="configBlackList;configStorePath;kvConfigPath", name="configBlackList")


class NameServerGuardSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The settings that say who may change a name server. No request shows or changes them."""

    changes_from: Annotated[
        str,
        Meta(
            description="addresses that may register brokers and change settings, separated by "
            "`;`: patterns, private, loopback; auto: private without access "
            "control, none with it"
        ),
    ] = field(default="auto", name="escrowNameServerChangesFrom")
    acl_enabled: Annotated[
        bool, Meta(description="administrators in plain_acl.yml may change this name server")
    ] = field(default=False, name="aclEnable")
    authenticates: Annotated[
        bool, Meta(description="super users of ACL 2.0 may change this name server")
    ] = field(default=False, name="authenticationEnabled")
    acl_as_rocketmq: Annotated[
        bool, Meta(description="anyone may change this name server, as with RocketMQ's")
    ] = field(default=False, name="escrowAclAsRocketMQ")
    first_user: Annotated[
        str, Meta(description='an administrator, {"username":"...","password":"..."}')
    ] = field(default="", name="initAuthenticationUser")
    inner_user: Annotated[
        str, Meta(description='credentials of brokers, {"accessKey":"...","secretKey":"..."}')
    ] = field(default="", name="innerClientAuthenticationCredentials")

    own_signatures: Annotated[
        str,
        Meta(
            description="accounts that sign as EscrowMQ's own clients do: administrators, all, "
            "or names separated by `;`"
        ),
    ] = field(default="", name="escrowOwnSignatures")

    def __repr__(self) -> str:
        return f"NameServerGuardSettings({self.changes_from!r})"  # no password in any log
