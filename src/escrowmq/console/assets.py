"""Serves the stylesheet, the script and the icon. Each is read once, and its name contains a
digest, so that browsers may cache it without limit."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

_FOLDER: Final = Path(__file__).parent / "static"
_KINDS: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_DIGEST_SIZE: Final = 12


class AssetFiles:
    """The asset files, by their names."""

    def __init__(self) -> None:
        self._urls: dict[str, str] = {}
        self._found: dict[str, tuple[bytes, str]] = {}
        for path in sorted(_FOLDER.iterdir()):
            if path.suffix not in _KINDS:
                continue
            body = path.read_bytes()
            digest = hashlib.sha256(body).hexdigest()[:_DIGEST_SIZE]
            name = f"{path.stem}.{digest}{path.suffix}"
            self._urls[path.name] = f"/static/{name}"
            self._found[name] = (body, _KINDS[path.suffix])

    def asset_url(self, name: str) -> str:
        """Return the URL of a file."""
        return self._urls[name]

    async def serve_file(self, request: Request) -> Response:
        """Serve one file. A name with another release's digest gets 404."""
        found = self._found.get(request.path_params["name"])
        if found is None:
            return PlainTextResponse("there is no such file\n", 404)
        body, kind = found
        kept = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(body, media_type=kind, headers=kept)
