"""The panels are judged by the answers to the dashboards' queries."""

from bench.dashboards.queries import Answer, PanelQuery, filled, numbers, of_dashboard, query_report


def answer(panel: str, expr: str, count: int = 0, *, why: str = "", error: str = "") -> Answer:
    """An answer on the dashboard `d`."""
    return Answer("d", PanelQuery(panel, expr, why), count, error)


def test_a_panel_has_data_if_one_of_its_queries_has() -> None:
    """A query that is asked for each pod counts once; a panel without data gives its reason, or is unexplained."""
    found = query_report(
        [
            answer("memory", "line"),
            answer("memory", "used", 3),
            answer("memory", "used"),
            answer("waits", "wait", why="nobody waited"),
            answer("lost", "metric_of_nobody"),
            answer("", "group by (node) (gpus)"),
        ]
    )
    assert (found.panels, found.queries) == (3, 5)
    assert found.empty == {("d", "waits"): "nobody waited", ("d", "lost"): ""}
    assert found.unexplained == ["d: lost"]


def test_a_refused_query_is_an_error_with_prometheus_words() -> None:
    """Also one of a rule, which has no panel."""
    found = query_report([answer("", "sum(", error="unexpected end of input")])
    assert found.errors == {"sum(": "unexpected end of input"}
    assert found.panels == 0


def test_samples_that_are_no_numbers_are_no_data() -> None:
    """A quantile of a histogram without observations is NaN, and Grafana draws nothing."""
    assert numbers([{"values": [[1, "NaN"], [2, "NaN"]]}]) == 0
    assert numbers([{"values": [[1, "NaN"], [2, "0.5"]]}, {"values": [[1, "+Inf"]]}]) == 2


def test_variables_get_values() -> None:
    """A chosen one, Grafana's own, or everything."""
    expr = 'rate(a{pod="$pod", gpu=~"${gpu}"}[$__rate_interval])'
    assert filled(expr, {"pod": "train"}) == 'rate(a{pod="train", gpu=~".*"}[20s])'


def test_variables_are_queries_too() -> None:
    """The values of a variable come from Prometheus, so the query behind it must be right."""
    board = {
        "templating": {"list": [{"query": "prometheus"}, {"query": 'label_values(a{b="$c"}, node)'}]},
        "panels": [
            {"title": "row"},
            {
                "title": "p",
                "targets": [{"expr": "a"}],
                "fieldConfig": {"defaults": {"noValue": "nothing there"}},
            },
        ],
    }
    assert list(of_dashboard(board)) == [
        PanelQuery("", 'group by (node) (a{b="$c"})'),
        PanelQuery("p", "a", "nothing there"),
    ]
