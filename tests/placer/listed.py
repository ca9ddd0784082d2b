"""The list in Redis, as people read it."""

from placer.stores.scores import ScoreList
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.placer_api import redis_keys as keys


async def listed_scores(
    scores: ScoreList,
) -> tuple[dict[NodeName, float], dict[tuple[NodeName, GpuUuid], float]]:
    """All scores of nodes and of GPUs, the best first, or `ScoresAwayError`."""
    async with scores._asking("give its scores"), scores._client.pipeline() as pipe:
        pipe.zrevrange(keys.NODES, 0, -1, withscores=True)
        pipe.zrevrange(keys.GPUS, 0, -1, withscores=True)
        nodes, gpus = await pipe.execute()
    by_gpu = {(NodeName(m.partition("/")[0]), GpuUuid(m.partition("/")[2])): float(s) for m, s in gpus}
    return {NodeName(name): float(score) for name, score in nodes}, by_gpu
