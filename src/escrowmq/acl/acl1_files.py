"""The files of accounts: the default one and those of a folder, read again when they change."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from escrowmq.acl.acl1_accounts import AccountFile, Rules, merge, read_accounts
from escrowmq.base.fixed_limits import ACL_FILE_SIZE_MAX, ACL_FILES_MAX, ACL_FOLDERS_DEPTH_MAX
from escrowmq.base.ports import Disk
from escrowmq.errors import EscrowMQError, UsageError

if TYPE_CHECKING:
    from escrowmq.acl.yaml_document import Value

_log = logging.getLogger(__name__)

DEFAULT_FILE: Final = "plain_acl.yml"
FOLDER: Final = "acl"
_TOOLS_FILE: Final = "tools.yml"
_ENDINGS: Final = (".yml", ".yaml")

Contents = dict[str, bytes]
"""What stands in each file, in the order in which the files count."""

Times = dict[str, int]
"""When each file was written."""


class AccountFiles:
    """Rules that are as new as the files, or the last good ones."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._contents: Contents = {}
        self._parsed: dict[str, tuple[bytes, AccountFile]] = {}
        self._seen: tuple[Contents, Times] | None = None
        self._refused: Contents | None = None
        self._trouble = ""
        self.rules = Rules()

    def load(self) -> None:
        """Read all files; UsageError, with the file and the place in it, when one is bad."""
        self._take(self._read())
        if not self._contents:
            _log.warning("aclEnable=true, but there is no %s: nobody is let in", DEFAULT_FILE)

    def look(self) -> bool:
        """Take over what has changed. A file is taken when two looks find the same in it, and it
        was not written in between: one that is being written may be cut anywhere. A bad one
        changes nothing, and is told once."""
        try:
            times = {path: self._disk.modified_ms(path) for path in self._existing()}
            found = self._read()
            if found == self._contents:
                self._seen = None
                self._note_trouble("")
                return False
            if (found, times) != self._seen:
                self._seen, self._refused = (found, times), None
                return False
            if found == self._refused:
                return False
            self._refused = found
            self._take(found)
        except (EscrowMQError, OSError) as error:
            self._note_trouble(str(error))
            return False
        self._note_trouble("")
        _log.warning("accounts were read again: %d of them", len(self.rules.accounts))
        return True

    def _note_trouble(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            _log.error("accounts are not read again, the last good ones count still: %s", trouble)
        self._trouble = trouble

    @property
    def trouble(self) -> str:
        """Why the files are not what counts; empty when they are."""
        return self._trouble

    # -- reading -----------------------------------------------------------------------------

    def _existing(self) -> list[str]:
        """The files that there are, in the order in which they count."""
        paths = self._paths(FOLDER, 0)
        if self._disk.size(DEFAULT_FILE) is not None:
            paths.append(DEFAULT_FILE)
        if len(paths) > ACL_FILES_MAX:
            raise UsageError(f"{len(paths)} files of accounts; {ACL_FILES_MAX} are allowed")
        return paths

    def _read(self) -> Contents:
        found: Contents = {}
        for path in self._existing():
            size = self._disk.size(path) or 0
            if size > ACL_FILE_SIZE_MAX:
                raise UsageError(
                    f"{path}: {size} bytes, {ACL_FILE_SIZE_MAX} are allowed; divide it"
                )
            data = self._disk.read(path)
            if data is not None:
                found[path] = data
        return found

    def _paths(self, folder: str, depth: int) -> list[str]:
        """Files of a folder and of those in it, sorted."""
        if depth == ACL_FOLDERS_DEPTH_MAX:
            raise UsageError(f"{folder}: folders are looked into {ACL_FOLDERS_DEPTH_MAX} deep")
        found: list[str] = []
        for name in self._disk.names(folder):
            path = f"{folder}/{name}"
            if name.endswith(_ENDINGS):
                if name != _TOOLS_FILE:
                    found.append(path)
            elif self._disk.size(path) is None:
                found += self._paths(path, depth + 1)
            if len(found) > ACL_FILES_MAX:
                break
        return found

    def _take(self, contents: Contents) -> None:
        parsed: dict[str, tuple[bytes, AccountFile]] = {}
        for path, data in contents.items():
            known = self._parsed.get(path)
            try:
                parsed[path] = known if known and known[0] == data else (data, read_accounts(data))
            except UsageError as error:
                raise UsageError(f"{path}: {error}") from error
        rules = merge(((path, file) for path, (_, file) in parsed.items()), default=DEFAULT_FILE)
        for key in rules.repeated:
            _log.warning("accessKey %s stands in a second place, which is passed over", key)
        self._parsed, self._contents, self.rules = parsed, contents, rules
        self._seen = self._refused = None

    # -- writing -----------------------------------------------------------------------------

    def document(self, path: str) -> Value:
        """What stands in a file now; UsageError when it cannot be read."""
        from escrowmq.acl.yaml_document import read_document

        data = self._disk.read(path)
        return None if data is None else read_document(data)

    def names(self) -> list[str]:
        """The files that there are."""
        return list(self._contents)

    def replace(self, path: str, document: object) -> None:
        """Write a file and take it over at once; UsageError, and nothing is written, when it
        would be bad."""
        from escrowmq.acl.yaml_document import write_document

        data = write_document(document)
        read_accounts(data)
        contents = self._contents | {path: data}
        if path != DEFAULT_FILE and DEFAULT_FILE in contents:  # it counts last
            contents[DEFAULT_FILE] = contents.pop(DEFAULT_FILE)
        self._disk.replace(path, data, is_private=True)
        self._take(contents)
