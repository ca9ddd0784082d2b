"""Makes the live page's parts for one placer."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nats.aio.client import Client

from placer.decide import Decider
from placer.live import site
from placer.live.news import RecentNews
from placer.live.pods import PodName, PodSource
from placer.live.rows import LiveRows
from placer.live.streams import Streams
from placer.live.waiting import WaitingSummary
from plimsoll.ids import PodUid
from plimsoll.part.metrics import VERSION


@dataclass(frozen=True, slots=True)
class LivePage:
    """The live page.

    Attributes:
        files: those of the page, by name.
        streams: what the page shows.
        news: reads events while its `run` does.
        name_of: gives the name of a pod of any front end, or None.
    """

    files: Mapping[str, site.File]
    streams: Streams
    news: RecentNews
    name_of: Callable[[PodUid], PodName | None]


async def live_page(
    client: Client,
    decider: Decider,
    sources: Callable[[], Sequence[PodSource]],
    missing: Callable[[], Sequence[str]],
    leads: Callable[[], bool],
) -> LivePage:
    """The live page of a placer.

    Args:
        client: brings the events.
        decider: has the reports and the promises.
        sources: gives the front ends; they may come later.
        missing: names what keeps the placer from its work now.
        leads: whether this placer is the one that places.
    """

    def name_of(uid: PodUid) -> PodName | None:
        names = (source.name_of(uid) for source in sources())
        return next((name for name in names if name is not None), None)

    files = await asyncio.to_thread(site.load)
    news = RecentNews(client, name_of)
    streams = Streams(LiveRows(decider, name_of), WaitingSummary(sources), news, VERSION, missing, leads)
    return LivePage(files, streams, news, name_of)
