"""Programs of others that judge the room `http2`, each built once."""

from __future__ import annotations

from pathlib import Path

from tests.interop import jars

HERE = Path(__file__).parent
H2SPEC = "github.com/summerwind/h2spec/cmd/h2spec"


def caller() -> Path:
    """Calls by grpc-go."""
    folder = HERE / "go"
    files = [folder / name for name in ("main.go", "go.mod", "go.sum")]
    return _built("grpc-go", folder, files, "caller", ".")


def h2spec() -> Path:
    """h2spec."""
    folder = HERE / "h2spec"
    return _built("h2spec", folder, [folder / "go.mod", folder / "go.sum"], "h2spec", H2SPEC)


def _built(name: str, folder: Path, files: list[Path], program: str, package: str) -> Path:
    def build(target: Path) -> None:
        made = str(target / program)
        jars.run(["go", "build", "-C", str(folder), "-mod=readonly", "-o", made, package])

    return jars._made(jars.BUILD, name, jars.digest(*files), build) / program
