"""What java.util.Properties makes of texts: `python -m tools.golden.properties` (Java 17).

Writes tests/golden/properties-java-17.json."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Final

TARGET: Final = Path(__file__).parents[2] / "tests" / "golden" / "properties-java-17.json"

READER: Final = """
import java.io.*;
import java.util.*;

class Reader {
    public static void main(String[] ignored) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            System.out.println(answer(HexFormat.of().parseHex(line)));
        }
    }

    static String answer(byte[] text) throws IOException {
        var found = new Properties();
        try {
            found.load(new ByteArrayInputStream(text));
        } catch (IllegalArgumentException error) {
            return "!";
        }
        var pairs = new StringJoiner(" ");
        for (var name : new TreeSet<>(found.stringPropertyNames())) {
            pairs.add(hex(name) + ":" + hex(found.getProperty(name)));
        }
        return pairs.toString();
    }

    static String hex(String text) throws IOException {
        return HexFormat.of().formatHex(text.getBytes("UTF-16BE"));
    }
}
"""

TEXTS: Final = (
    "", "# a\n! b\n\n", "a=1", "a = 1 \nb:2\nc 3", "  a=1\\\n   2\\\n3\nb=4", "a=x\\\\\nb=1",
    "a\\=b=c", "a=\\u0041\\t\\q", "a=1\na=2", "a", "a=b=c", "a=1\\", "a=1\r\nb=2\rc=3",
    "d\\ e=f\\=g", "h=i\\\n\nj=k", "h=i\\\n # no comment", "\\\n# a comment\na=1",
    "# a comment\\\na=1", "a\t:\t=1", "a\f1", "=1", ":", "a==1", "smile=\\ud83d\\ude00",
    "\xe9=\xfc", "a=\\u12", "a=#1 !2", "\\#a=1", "a=1 \\\n \\\n  2", "a=\\\\\\\n1",
    "a\\:b\\ c = \\ d", "brokerIP1=127.0.0.1\nstorePathRootDir=C:\\\\data",
)  # fmt: skip


def read_by_java(texts: tuple[str, ...]) -> list[dict[str, str] | None]:
    """The pairs of each text; None where Java refuses it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "Reader.java")
        source.write_text(READER, encoding="ascii")
        lines = "".join(text.encode("latin-1").hex() + "\n" for text in texts)
        done = subprocess.run(
            ["java", str(source)], input=lines, capture_output=True, text=True, check=True
        )
    return [_pairs(line) for line in done.stdout.split("\n")[: len(texts)]]


def _pairs(line: str) -> dict[str, str] | None:
    if line == "!":
        return None
    pairs = (pair.partition(":") for pair in line.split())
    return {_text(name): _text(value) for name, _, value in pairs}


def _text(hexadecimal: str) -> str:
    return bytes.fromhex(hexadecimal).decode("utf-16-be")


def main() -> None:
    """Capture."""
    rows = [
        json.dumps({"text": text, "found": found})
        for text, found in zip(TEXTS, read_by_java(TEXTS), strict=True)
    ]
    front = {
        "release": "Java 17",
        "captured": "java.util.Properties.load of the text in Latin-1; null: it raised",
    }
    TARGET.write_text(
        json.dumps(front)[:-1] + ', "texts": [\n' + ",\n".join(rows) + "\n]}\n", encoding="ascii"
    )


if __name__ == "__main__":
    main()
