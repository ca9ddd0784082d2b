"""Which worker runs which file."""

from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


def needs_apiserver(file: Path) -> bool:
    """Whether tests of this file start an API server, by its words and those of its folder's fixtures.

    A wrong answer costs a worker's time, and no test its result.
    """
    texts = (one.read_text() for one in (file, file.parent / "conftest.py") if one.exists())
    return any("apiserver" in text.lower() for text in texts)


class FewApiServers(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Every other worker begins with the files that need an API server, and the rest with all others.

    So half of the workers start none. A server costs 300 MB, two seconds of CPU, and some CPU as long as it runs.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        serves = self.nodes.index(node) % 2 == 0
        wanted = (one for one in self.workqueue if needs_apiserver(self.config.rootpath / one) == serves)
        self.workqueue.move_to_end(next(wanted, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)
