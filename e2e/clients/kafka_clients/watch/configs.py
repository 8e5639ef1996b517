"""A topic's and a broker's config, which are altered when the takeover begins."""

from kafka_clients.cluster import BROKER_RESOURCE, TOPIC_RESOURCE, WireAdmin, confluent_admin, insist
from kafka_clients.seed import ALTERED_TOPIC
from kafka_clients.watch.balance import Balance, Subject, judge_configs
from kafka_clients.watch.moments import Moment, Moments
from kafka_clients.watch.watcher import Watcher

TOPIC_CONFIG, BROKER_CONFIG = "max.message.bytes", "log.index.interval.bytes"
FIRST = {TOPIC_CONFIG: "1100000", BROKER_CONFIG: "5000"}
ALTERED = {TOPIC_CONFIG: "1200000", BROKER_CONFIG: "6000"}
DEADLINE_S = 180.0


class Configs(Watcher):
    """The broker is the last one: it registers last, and its config is altered while another restarts."""

    subject = Subject.CONFIGS

    def __init__(self, moments: Moments, run: str) -> None:
        super().__init__(moments, run)
        self.values = FIRST
        self.alterations = 0

    def prepare(self) -> None:
        self.broker = max(confluent_admin().list_topics(timeout=20).brokers)
        self._set(FIRST)

    def watch(self) -> None:
        while not self.moments.told(Moment.TAKEOVER):
            if self.ended.wait(0.3):
                return
        self._set(ALTERED)
        self.values, self.alterations = ALTERED, len(ALTERED)

    def balance(self) -> Balance:
        names = {
            f"topic {ALTERED_TOPIC} {TOPIC_CONFIG}": TOPIC_CONFIG,
            f"broker {self.broker} {BROKER_CONFIG}": BROKER_CONFIG,
        }
        served = insist(self._served)
        return judge_configs(
            {text: self.values[name] for text, name in names.items()},
            {text: served.get(name) for text, name in names.items()},
            self.alterations,
        )

    def _set(self, values: dict[str, str]) -> None:
        """Set both values; it is repeated while the broker restarts or there is no controller."""

        def both(wire: WireAdmin) -> None:
            wire.alter_configs(TOPIC_RESOURCE, ALTERED_TOPIC, {TOPIC_CONFIG: values[TOPIC_CONFIG]})
            wire.set_broker_configs(str(self.broker), {BROKER_CONFIG: values[BROKER_CONFIG]})

        insist(both, DEADLINE_S)

    def _served(self, wire: WireAdmin) -> dict[str, str | None]:
        topic = wire.dynamic_configs(TOPIC_RESOURCE, [ALTERED_TOPIC])[ALTERED_TOPIC]
        broker = wire.dynamic_configs(BROKER_RESOURCE, [str(self.broker)], self.broker)[str(self.broker)]
        return topic | broker
