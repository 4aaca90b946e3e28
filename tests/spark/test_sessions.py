"""Other ways to a session than a classic one: Spark Connect, declarative pipelines, a Python that
gets the package with the job. Each in processes of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import escrowmq
from tests.interop import servers
from tests.interop.servers import Server

EXAMPLES = Path(__file__).parents[2] / "examples"
WITHIN_S = 240

pytest.importorskip("grpc_status")
pytestmark = pytest.mark.long


@pytest.fixture
def orders(server: Server) -> Server:
    """A server with three orders."""
    for topic in ("orders", "orders-copy", "large-orders"):
        with escrowmq.Admin(server.nameserver) as admin:
            if topic in admin.topics.names():
                admin.topics.delete(topic)
        servers.new_topic(server, topic)
    with escrowmq.Producer(server.nameserver, group="g") as producer:
        for number, tag in ((1, "card"), (2, "card"), (3, "cash")):
            producer.send("orders", str(number * 10).encode(), tag=tag)
    return server


def run(*command: object, folder: Path, **environment: str) -> str:
    """What a process that ends well has printed."""
    own = {
        "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    ended = subprocess.run(
        [str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False,
        env=os.environ | own | environment, timeout=WITHIN_S,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return ended.stdout


def bodies(server: Server, topic: str) -> list[str]:
    with escrowmq.Admin(server.nameserver) as admin:
        return sorted(
            message.body.decode()
            for status in admin.topics.describe(topic).queues
            if status.max_offset
            for message in admin.messages.at(status.queue, 0, count_max=32)
        )


def test_spark_connect_reads_and_copies_once(orders: Server, tmp_path: Path) -> None:
    for _ in range(2):
        told = run(
            sys.executable, EXAMPLES / "spark_connect.py", orders.nameserver,
            folder=tmp_path, CHECKPOINT=str(tmp_path / "checkpoint"),
        )  # fmt: skip
        assert told == "3 orders\n3 copied\n"


def test_a_declarative_pipeline_has_a_topic_as_table_and_as_sink(
    orders: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "pipeline"
    shutil.copytree(EXAMPLES / "spark_pipeline", folder)
    spec = folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/tmp/shop-pipeline", str(tmp_path / "storage")))
    name_server = f"spark.shop.nameServer={orders.nameserver}"
    for expected in (["20", "30"], ["20", "30", "40"]):
        run(
            Path(sys.executable).parent / "spark-pipelines", "run", "--spec", spec,
            "--conf", name_server, "--conf", "spark.ui.enabled=false",
            "--conf", "spark.sql.catalogImplementation=hive", folder=folder,
        )  # fmt: skip
        assert bodies(orders, "large-orders") == expected
        with escrowmq.Producer(orders.nameserver, group="g") as producer:
            producer.send("orders", b"40", tag="cash")


JOB = """
import sys
from pyspark.sql import SparkSession
nameserver, archive, how = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(3).mapInArrow(lambda batches: batches, "id long").count()  # workers run already
if how == "added":
    spark.sparkContext.addPyFile(archive)
if how == "added late":
    sys.path.append(archive)
from escrowmq.pipeline.datasource import EscrowMQSource
spark.dataSource.register(EscrowMQSource)
if how == "added late":
    spark.sparkContext.addPyFile(archive)
reader = spark.read.format("escrowmq").option("nameServer", nameserver)
try:
    print(reader.option("subscribe", "orders").load().count())
except Exception as error:
    print(error)
"""


@pytest.mark.parametrize("how", ["submitted", "added", "added late"])
def test_a_job_brings_the_package_to_a_python_that_has_it_not(
    orders: Server, tmp_path: Path, how: str
) -> None:
    job, archive, bare = tmp_path / "job.py", tmp_path / "escrowmq.zip", tmp_path / "bare"
    job.write_text(JOB)
    source = Path(escrowmq.__file__).parent
    with zipfile.ZipFile(archive, "w") as zipped:
        for path in source.rglob("*.py"):
            zipped.write(path, path.relative_to(source.parent))
    # A Python with all that is installed here, except the package itself.
    bare.mkdir()
    (bare / "sitecustomize.py").write_text(
        "import sys\n"
        f"sys.path[:] = [one for one in sys.path if one != {str(source.parent)!r}]\n"
        "sys.meta_path[:] = [one for one in sys.meta_path if 'editable' not in repr(one)]\n"
    )
    shipped = ["--py-files", archive] if how == "submitted" else []
    told = run(
        Path(sys.executable).parent / "spark-submit", *shipped, job, orders.nameserver, archive,
        how, folder=tmp_path, PYTHONPATH=str(bare),
    )  # fmt: skip
    if how == "added late":
        assert "PYTHON_DATA_SOURCE_ERROR" in told or "No module named 'escrowmq'" in told
        assert "3" not in told.splitlines()
    else:
        assert told.strip() == "3"
