"""All watchers of one load."""

from kafka_clients.watch.configs import Configs
from kafka_clients.watch.group import Group
from kafka_clients.watch.kept import Kept
from kafka_clients.watch.moments import Moments
from kafka_clients.watch.moves import Moves
from kafka_clients.watch.topics import TopicsWatcher
from kafka_clients.watch.transactions import TransactionsWatcher
from kafka_clients.watch.watcher import Watcher


def watchers(run: str, moments: Moments) -> list[Watcher]:
    """Return one watcher for each subject."""
    kinds = (Kept, TransactionsWatcher, Group, Moves, TopicsWatcher, Configs)
    return [kind(moments, run) for kind in kinds]
