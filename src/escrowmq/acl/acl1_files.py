"""The files of accounts: the default one and those of a folder. They are reloaded when they
change."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from escrowmq.acl.acl1_accounts import AccountFile, Acl1Rules, merge_files, read_accounts
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
"""By path: the content of each file, in order of precedence."""

Times = dict[str, int]
"""By path: each file's modification time."""


class AccountFiles:
    """The rules of the current files, or of the last valid ones if a file is invalid."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._contents: Contents = {}
        self._parsed: dict[str, tuple[bytes, AccountFile]] = {}
        self._seen: tuple[Contents, Times] | None = None
        self._refused: Contents | None = None
        self._trouble = ""
        self.rules = Acl1Rules()

    def load(self) -> None:
        """Read all files; raises UsageError, with file and line, if one is invalid."""
        self._apply_contents(self._read_contents())
        if not self._contents:
            _log.warning(
                "aclEnable=true, but there is no %s: all requests are refused", DEFAULT_FILE
            )

    def reload_if_changed(self) -> bool:
        """Reload changed files; return whether that was done. A file is loaded once two polls find
        the same content and modification time, because one that is being written may be incomplete.
        An invalid file changes nothing, and is logged once."""
        try:
            times = {path: self._disk.modified_ms(path) for path in self._existing_paths()}
            found = self._read_contents()
            if found == self._contents:
                self._seen = None
                self._log_stale_reason("")
                return False
            if (found, times) != self._seen:
                self._seen, self._refused = (found, times), None
                return False
            if found == self._refused:
                return False
            self._refused = found
            self._apply_contents(found)
        except (EscrowMQError, OSError) as error:
            self._log_stale_reason(str(error))
            return False
        self._log_stale_reason("")
        _log.warning("%d accounts were reloaded", len(self.rules.accounts))
        return True

    def _log_stale_reason(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            _log.error("accounts were not reloaded, the last valid ones stay in force: %s", trouble)
        self._trouble = trouble

    @property
    def stale_reason(self) -> str:
        """Why the current files are not used; empty if they are."""
        return self._trouble

    # -- reading -----------------------------------------------------------------------------

    def _existing_paths(self) -> list[str]:
        """The existing files, in order of precedence."""
        paths = self._paths_below(FOLDER, 0)
        if self._disk.size(DEFAULT_FILE) is not None:
            paths.append(DEFAULT_FILE)
        if len(paths) > ACL_FILES_MAX:
            raise UsageError(f"{len(paths)} files of accounts; {ACL_FILES_MAX} are allowed")
        return paths

    def _read_contents(self) -> Contents:
        found: Contents = {}
        for path in self._existing_paths():
            size = self._disk.size(path) or 0
            if size > ACL_FILE_SIZE_MAX:
                raise UsageError(
                    f"{path}: {size} bytes, {ACL_FILE_SIZE_MAX} are allowed; divide it"
                )
            data = self._disk.read(path)
            if data is not None:
                found[path] = data
        return found

    def _paths_below(self, folder: str, depth: int) -> list[str]:
        """Return the files of a folder and its subfolders, sorted."""
        if depth == ACL_FOLDERS_DEPTH_MAX:
            raise UsageError(
                f"{folder}: folders are searched {ACL_FOLDERS_DEPTH_MAX} levels deep only"
            )
        found: list[str] = []
        for name in self._disk.names(folder):
            path = f"{folder}/{name}"
            if name.endswith(_ENDINGS):
                if name != _TOOLS_FILE:
                    found.append(path)
            elif self._disk.size(path) is None:
                found += self._paths_below(path, depth + 1)
            if len(found) > ACL_FILES_MAX:
                break
        return found

    def _apply_contents(self, contents: Contents) -> None:
        parsed: dict[str, tuple[bytes, AccountFile]] = {}
        for path, data in contents.items():
            known = self._parsed.get(path)
            try:
                parsed[path] = known if known and known[0] == data else (data, read_accounts(data))
            except UsageError as error:
                raise UsageError(f"{path}: {error}") from error
        rules = merge_files(
            ((path, file) for path, (_, file) in parsed.items()), default=DEFAULT_FILE
        )
        for key in rules.repeated:
            _log.warning("accessKey %s is defined a second time; that definition is ignored", key)
        self._parsed, self._contents, self.rules = parsed, contents, rules
        self._seen = self._refused = None

    # -- writing -----------------------------------------------------------------------------

    def read_document(self, path: str) -> Value:
        """The current content of a file; raises UsageError if it cannot be read."""
        from escrowmq.acl.yaml_document import parse_yaml

        data = self._disk.read(path)
        return None if data is None else parse_yaml(data)

    def loaded_files(self) -> list[str]:
        """The existing files."""
        return list(self._contents)

    def replace_file(self, path: str, document: object) -> None:
        """Write a file and load it immediately; raises UsageError, without writing, if it would be
        invalid."""
        from escrowmq.acl.yaml_document import encode_yaml

        data = encode_yaml(document)
        read_accounts(data)
        contents = self._contents | {path: data}
        if path != DEFAULT_FILE and DEFAULT_FILE in contents:  # it counts last
            contents[DEFAULT_FILE] = contents.pop(DEFAULT_FILE)
        self._disk.replace(path, data, is_private=True)
        self._apply_contents(contents)
