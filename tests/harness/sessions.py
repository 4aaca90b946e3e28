"""Which worker gets which files: few of them make a session of Spark."""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

SPARK: Final = "tests/spark/"
SESSIONS: Final = 1
"""It takes half a minute of CPU until the JVM of a session is warm, and the other workers have work
for as long as all of Spark's tests take."""


class FewSessions(LoadFileScheduling):  # type: ignore[misc]
    """Files of Spark go to some of the workers as long as there is other work for the others."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        has_session = node in self.nodes[:SESSIONS]
        fitting = (file for file in self.workqueue if file.startswith(SPARK) == has_session)
        chosen = next(fitting, next(iter(self.workqueue)))
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)
