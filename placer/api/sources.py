"""The front ends, as sources of the HTTP API's answers. The cluster's front end comes only once it can be reached."""

from placer.api.explaining import Explainer, NotExplainedError, Previewer
from placer.cluster_link import ClusterLink
from placer.live.pods import PodSource
from placer.local.explain import LocalExplainer, LocalPods


def pod_sources(local: LocalPods | None, cluster: ClusterLink | None) -> list[PodSource]:
    """The names of pods, for the live page."""
    sources: list[PodSource] = [local] if local is not None else []
    if cluster is not None and cluster.parts is not None:
        sources.append(cluster.parts.doors.live_pods)
    return sources


def explainers(local: LocalExplainer | None, cluster: ClusterLink | None) -> list[Explainer]:
    """The front ends that explain pods, in the order in which they are asked.

    Raises:
        NotExplainedError: the cluster's front end does not exist yet.
    """
    found: list[Explainer] = [local] if local is not None else []
    if cluster is not None:
        if cluster.parts is None:
            raise NotExplainedError("the placer has just started and has not seen all pods; ask again")
        found.append(cluster.parts.doors.explainer)
    return found


def previews(cluster: ClusterLink | None) -> Previewer | None:
    """The front end that answers which pods would move; None without a cluster.

    Raises:
        NotExplainedError: likewise.
    """
    if cluster is None:
        return None
    if cluster.parts is None:
        raise NotExplainedError("the placer has just started and has not seen all pods; ask again")
    return cluster.parts.doors.previews
