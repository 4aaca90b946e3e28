"""Records which account created which topics and groups by using them. All accounts share one table
of names, and each may have a limited share of it."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from escrowmq.errors import UsageError

PATH: Final = "config/escrowMadeNames.json"


class RequestAccount:
    """The account whose request is being served now."""

    __slots__ = ("account", "has_owners")

    def __init__(self) -> None:
        self.account = ""
        """The account; empty without access control."""
        self.has_owners = False
        """Whether names belong to the account that created them. False without access control, or
        if the broker is configured to behave like RocketMQ."""


class AutoCreateQuota:
    """The automatically created names of one kind, each with its account. Names that operators
    create explicitly are not included."""

    def __init__(
        self, present: RequestAccount | None = None, *, most: int = 0, setting: str = ""
    ) -> None:
        self._present = present or RequestAccount()
        self._most = most
        self._setting = setting
        self._accounts: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self.changes = 0

    def check_quota(self, name: str) -> None:
        """Raise UsageError if the present account may create no more names."""
        account = self._present.account
        if account and self._most and self._counts[account] >= self._most:
            raise UsageError(
                f"{name}: account {account} has already created {self._counts[account]} by "
                f"using them, and {self._setting}={self._most} allows no more; delete some, "
                "or have an operator create it"
            )

    def add_created(self, name: str) -> None:
        """Record that the present account has created a name."""
        self.add_for(name, self._present.account)

    def add_for(self, name: str, account: str) -> None:
        """Record that a name was created for an account; nothing if that is empty."""
        if account:
            self._add(name, account)

    def _add(self, name: str, account: str) -> None:
        self.remove_deleted(name)
        self._accounts[name] = account
        self._counts[account] += 1
        self.changes += 1

    def remove_deleted(self, name: str) -> None:
        """Remove a name that was deleted."""
        account = self._accounts.pop(name, None)
        if account is not None:
            self.changes += 1
            self._counts[account] -= 1
            assert self._counts[account] >= 0, account
            if not self._counts[account]:
                del self._counts[account]

    def account_of(self, name: str) -> str:
        """Return the account that has created a name; an empty text if none has."""
        return self._accounts.get(name, "")

    def count(self, account: str) -> int:
        """Return how many names an account has created."""
        return self._counts.get(account, 0)

    def names_by_account(self) -> dict[str, list[str]]:
        """Return each account's names, to be saved."""
        found: dict[str, list[str]] = {}
        for name, account in self._accounts.items():
            found.setdefault(account, []).append(name)
        return found

    def load(self, saved: dict[str, list[str]]) -> None:
        """Load each account's names."""
        for account, names in saved.items():
            for name in names:
                self._add(name, account)
        self.changes = 0


class AutoCreatedFile(msgspec.Struct):
    """The content of the saved file: names of topics and groups by account."""

    topics: dict[str, list[str]] = {}
    groups: dict[str, list[str]] = {}
    retries: dict[str, list[str]] = {}
    """The retry topics of popped messages, by the account that has created the group."""
