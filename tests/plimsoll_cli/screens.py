"""Prints what `plimsoll status` and `doctor` show of fixed answers, to the terminal that it runs in.

    python -m tests.plimsoll_cli.screens status|doctor

The real answers differ from machine to machine. Tests of both commands have them; here the lines alone count.
"""

import sys

from plimsoll.broker.wire import Description
from plimsoll_cli import output, status
from plimsoll_cli.columns import terminal_columns
from plimsoll_cli.doctor import report
from plimsoll_cli.doctor.examine import Group
from plimsoll_cli.doctor.finding import failed, ok, skipped, warning
from tests.plimsoll_cli.test_status import A, B, Had, use

USES = (
    use("trainer-of-a-team-7f9c5d", Had(30, 80, used_pct=79.6, waited_s=10.1), A, B),
    use("server", Had(20, used_pct=20, waited_s=10), B, pids=(1200, 1201, 1202, 1203)),
    use("whole", None),
    use("free", Had(30, used_pct=None)),
)

GROUPS = (
    Group(
        name="this machine",
        findings=(
            ok("driver", "NVIDIA driver 570.124.06, 2 GPUs"),
            warning(
                "clock",
                "this machine's clock is 31 s behind the leader's",
                "see `timedatectl` on both, and start chrony or systemd-timesyncd on the one that is wrong",
            ),
        ),
    ),
    Group(
        name="cluster",
        findings=(
            failed(
                "rights",
                "the account plimsoll-placer may not: create tokenreviews, list poddisruptionbudgets",
                "apply deploy/chart of this version with `helm upgrade`",
            ),
            skipped("placer", "no address of the placer was given", "give --placer, or a kubeconfig"),
        ),
    ),
)


def main(what: str) -> None:
    """Print it."""
    if what == "doctor":
        console = output.console()
        for line in report.shown(GROUPS, console.width):
            console.print(line, soft_wrap=True)
        return
    described = Description(containers=USES)
    output.lines(*status.shown(described, described, 1.0, terminal_columns()))


if __name__ == "__main__":
    main(sys.argv[1])
