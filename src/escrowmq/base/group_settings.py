"""Settings of a member of a group of brokers that fails over."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

from escrowmq.base.setting_facts import FIXED


class GroupSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings of a member; the same for all members of a group, except addresses and names."""

    authority: Annotated[
        str,
        Meta(
            description="the engine that decides which member is the master, as a URL: "
            "etcd://HOST:PORT[,HOST:PORT…], s3://BUCKET/PREFIX, kubernetes://; as --authority",
            extra=FIXED,
        ),
    ] = field(default="", name="escrowAuthority")
    member: Annotated[
        str,
        Meta(
            description="name of this member, for people; by default one that the first start "
            "chooses and the folder keeps",
            extra=FIXED,
        ),
    ] = field(default="", name="escrowMember")
    secret_file: Annotated[
        str,
        Meta(
            description="file with a secret that all members share, by which they authenticate "
            "each other",
            extra=FIXED,
        ),
    ] = field(default="", name="escrowGroupSecretFile")
    tls: Annotated[
        Literal["disabled", "permissive", "enforcing"],
        Meta(
            description="enforcing: members copy by TLS only, and show certificates to each "
            "other; permissive: by TLS where both can, for the time of a migration",
            extra=FIXED,
        ),
    ] = field(default="disabled", name="escrowGroupTls")
    tls_certificate: Annotated[
        str, Meta(description="PEM; this member's certificate, reloaded when it changes")
    ] = field(default="", name="escrowGroupTlsCertPath")
    tls_key: Annotated[str, Meta(description="PEM; may be in the certificate's file")] = field(
        default="", name="escrowGroupTlsKeyPath"
    )
    tls_password: Annotated[str, Meta(description="password of the key")] = field(
        default="", name="escrowGroupTlsKeyPassword"
    )
    tls_trusted: Annotated[
        str,
        Meta(
            description="PEM of the CA that signs members' certificates: anyone with a "
            "certificate that it signed counts as a member"
        ),
    ] = field(default="", name="escrowGroupTlsTrustCertPath")
    min_copies: Annotated[
        int,
        Meta(
            ge=1,
            le=16,
            description="messages are accepted only while at least this number of members is in "
            "sync, including the master. 1: a master that is left alone continues, "
            "and waits for its disk",
            extra=FIXED,
        ),
    ] = field(default=1, name="escrowMinCopies")
    silence_ms: Annotated[
        int,
        Meta(
            ge=500,
            description="a member that lags behind for this long is no longer in sync, and "
            "senders no longer wait for it",
            extra=FIXED,
        ),
    ] = field(default=3_000, name="escrowSilence")
    takeover_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            description="a member in sync tries to become master when the master has been "
            "silent for this long; at once when the master is known to have ended",
            extra=FIXED,
        ),
    ] = field(default=3_500, name="escrowTakeover")
    catch_up_rate: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 20,
            description="MiB of log a second sent to a member that is not in sync, or twice the "
            "rate of new data if that is more; 0: as fast as disks and network allow",
            extra=FIXED,
        ),
    ] = field(default=64, name="escrowCatchUpRate")
    drills: Annotated[
        bool,
        Meta(
            description="administrators may make this member fail for up to a minute, or kill "
            "it (`escrowmq cluster drill`)",
            extra=FIXED,
        ),
    ] = field(default=False, name="escrowDrills")

    def __repr__(self) -> str:
        return f"GroupSettings({self.authority!r})"  # no password in any log
