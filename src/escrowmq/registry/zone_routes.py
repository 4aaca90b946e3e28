"""Restricts routes for clients that want only the brokers of their own zone."""

from __future__ import annotations

import msgspec

from escrowmq.codec.routes import TopicRoute
from escrowmq.registry.route_table import MASTER_ID


def route_in_zone(route: TopicRoute, zone: str) -> TopicRoute:
    """Return the route without the brokers of other zones. A broker name of another zone that has
    no master is kept."""
    kept, removed = [], set()
    for broker in route.broker_datas or ():
        # Brokers with only slaves stay, whatever their zone: nothing else of them is left.
        if MASTER_ID in broker.broker_addrs and (broker.zone_name or "").lower() != zone.lower():
            removed.add(broker.broker_name)
        else:
            kept.append(broker)
    gone = {
        address
        for broker in route.broker_datas or ()
        if broker.broker_name in removed
        for address in broker.broker_addrs.values()
    }
    servers = route.filter_server_table or {}
    return msgspec.structs.replace(
        route,
        broker_datas=kept,
        queue_datas=[q for q in route.queue_datas or () if q.broker_name not in removed],
        filter_server_table={a: s for a, s in servers.items() if a not in gone},
    )
