"""Settings of a member of a group of brokers that fails over."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

from escrowmq.base.setting_facts import FIXED


class GroupSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The members of a group have the same settings, except their addresses and names."""

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
            description="file with a text that all members know, and prove to each other",
            extra=FIXED,
        ),
    ] = field(default="", name="escrowGroupSecretFile")
    tls: Annotated[
        Literal["disabled", "permissive", "enforcing"],
        Meta(
            description="enforcing: members copy by TLS only, and show certificates to each "
            "other; permissive: by TLS where both can, for the time of a change",
            extra=FIXED,
        ),
    ] = field(default="disabled", name="escrowGroupTls")
    tls_certificate: Annotated[
        str, Meta(description="PEM; this member's certificate, reloaded when it changes")
    ] = field(default="", name="escrowGroupTlsCertPath")
    tls_key: Annotated[str, Meta(description="PEM; may be in the certificate's file")] = field(
        default="", name="escrowGroupTlsKeyPath"
    )
    tls_password: Annotated[str, Meta(description="of the key")] = field(
        default="", name="escrowGroupTlsKeyPassword"
    )
    tls_trusted: Annotated[
        str,
        Meta(
            description="PEM of the CA that signs members' certificates: anybody with one that it "
            "signed is taken for a member"
        ),
    ] = field(default="", name="escrowGroupTlsTrustCertPath")
    min_copies: Annotated[
        int,
        Meta(
            ge=1,
            le=16,
            description="messages are taken only while this number of members is in sync, the "
            "master among them. 1: a master that is left alone goes on, and waits for its disk",
            extra=FIXED,
        ),
    ] = field(default=1, name="escrowMinCopies")
    silence_ms: Annotated[
        int,
        Meta(
            ge=500,
            description="a member that lacks something for so long is no longer in sync, and "
            "nothing waits for it",
            extra=FIXED,
        ),
    ] = field(default=3_000, name="escrowSilence")
    takeover_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            description="a member in sync asks to be master when the master has been silent for "
            "so long; at once when it is known to have ended",
            extra=FIXED,
        ),
    ] = field(default=3_500, name="escrowTakeover")
    drills: Annotated[
        bool,
        Meta(
            description="administrators may make this member fail for up to a minute, or end it "
            "(`escrowmq cluster drill`)",
            extra=FIXED,
        ),
    ] = field(default=False, name="escrowDrills")

    def __repr__(self) -> str:
        return f"GroupSettings({self.authority!r})"  # no password in any log
