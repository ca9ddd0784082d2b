"""The paper's measurements: Tables IV and V, figure for figure.

Each figure is a mean over six repetitions (§IV.A). From count to count the figures jump by more than means over six
independent draws would (18 containers take 339.8 s, 20 take 262.4 s). At the same count, the four policies lie within
about a tenth of each other. So each count seems to have a single draw, run six times under each policy.

Source: D. Kang, T. J. Jun, D. Kim, J. Kim, D. Kim, "ConVGPU: GPU Management Middleware in Container Based
Virtualized Environment", IEEE CLUSTER 2017.
"""

from typing import Final

COUNTS: Final = tuple(range(4, 40, 2))
"""Numbers of containers."""

POLICIES: Final = ("fifo", "best-fit", "recent-use", "random")
"""FIFO, BF, RU and Rand, by our names."""


def _table(rows: str) -> dict[str, dict[int, float]]:
    """Parse rows of a count and its figures, one per policy in the order of `POLICIES`."""
    table: dict[str, dict[int, float]] = {policy: {} for policy in POLICIES}
    for row in rows.strip().splitlines():
        count, *figures = row.split()
        for policy, figure in zip(POLICIES, figures, strict=True):
            table[policy][int(count)] = float(figure)
    return table


FINISHED_S: Final = _table("""
 4   67.6   68.2   68.4   69.1
 6  134.1  134.0  134.5  133.9
 8  111.9  110.9  112.5  111.8
10  159.3  158.8  159.0  159.1
12  103.6  104.0  106.5  103.6
14  155.4  159.5  157.7  155.2
16  198.4  195.9  197.9  196.7
18  339.8  318.4  342.1  344.8
20  262.4  281.1  271.3  277.2
22  266.6  257.2  267.8  275.8
24  242.8  241.8  253.5  251.8
26  362.1  345.9  386.4  386.7
28  455.8  426.0  453.6  452.7
30  414.1  368.0  403.7  393.7
32  423.1  405.2  436.4  432.1
34  566.4  537.5  555.8  553.4
36  507.9  501.0  526.2  529.9
38  593.8  588.7  591.0  620.4
""")
"""Table IV: seconds until all containers had finished, by policy and count."""

SUSPENDED_S: Final = _table("""
 4    2.4    2.4    2.4    2.4
 6   33.7   36.2   35.6   32.0
 8   35.7   21.7   31.2   23.6
10   27.2   34.3   28.1   27.3
12   19.2   17.5   20.0   19.4
14   38.1   44.4   37.7   37.5
16   45.6   44.9   51.3   44.0
18   90.4  113.3   88.9   76.5
20   72.2   84.8   76.6   75.5
22   77.6   80.4   75.2   78.4
24   58.1   57.3   56.7   60.5
26   72.6   88.5   80.9   67.9
28  135.8  175.7  117.4  129.4
30  132.5  150.1  122.9  127.5
32  115.3  131.3   95.3  118.1
34  162.5  205.3  170.9  165.3
36  157.1  181.6  154.6  175.8
38  182.7  289.4  182.6  174.2
""")
"""Table V: seconds that a container was suspended on average, by policy and count."""
