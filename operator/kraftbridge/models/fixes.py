"""Why the fix of a finding is not run by ``make fixes``. Pure data.

Every other fix is run as its words say: its commands against a real Kafka, its settings against a real API server.
``tests/unit/test_fixes.py`` holds the sum, so a new code is run or has a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from kraftbridge.models.catalogue import Code


class Unrun(StrEnum):
    """Reasons."""

    JUDGEMENT = "the user finds something out, waits, or decides: the text has no command and no setting"
    RIGHTS = "it is a right of the operator: tests/chart/test_rbac.py compares what the chart grants with what it needs"
    CHART = "it is a value of the chart: tests/chart renders it"
    REQUESTS = "it is a right in Kafka whose commands TopicsHidden and OperationsMissing have"
    SECRETS = "it is content of a Secret: tests/integration/test_documented_secrets.py starts Kafka with it"
    SURROUNDINGS = "it is about disks, memory, names, certificates or policies, outside of Kafka and an API server"
    OBJECTS = "the user's own object goes back to what it was: nobody but the user knows it"
    NODES = "it needs a node, which an API server alone does not have"
    START = "brokers restart with a setting or an image: tests/integration and `make dry-start-live` start them"
    TIER = "tests/integration runs it on real Kafka: test_log_dirs.py, test_long_configs.py"
    RECORDED = "its words depend on what was lost: tests/unit/phases and `make lost-quorum-live` go these ways"


UNRUN: Final[Mapping[Code, Unrun]] = {
    **dict.fromkeys((Code.LEFTOVER_REPLICAS, Code.TEXT_TOO_LONG), Unrun.TIER),
    **dict.fromkeys((Code.LOG_DIR_OFFLINE, Code.DATA_NOT_ON_CLAIM), Unrun.SURROUNDINGS),
    **dict.fromkeys((Code.REPLICAS_MOVING, Code.ALTER_CONFIG_POLICY_DIFFERS), Unrun.JUDGEMENT),
    **dict.fromkeys((Code.PROBE_ASKS_ZOOKEEPER, Code.POD_NEEDS_ZOOKEEPER), Unrun.OBJECTS),
    Code.LOG_DIRS_UNKNOWN: Unrun.REQUESTS,
    **dict.fromkeys((Code.LEFTOVER_IN_THE_WAY, Code.TOPIC_IDS_NOT_PROVEN), Unrun.NODES),
    **dict.fromkeys(
        (
            Code.ACCEPTED_CODE_UNKNOWN,
            Code.UPGRADE_NOT_PROVEN,
            Code.MESSAGE_FORMAT_ENDS,
            Code.RELEASE_DEFAULTS_DIFFER,
            Code.KAFKA4_CLASS_MISSING,
            Code.KAFKA4_DEFAULTS_DIFFER,
            Code.KAFKA4_DROPS_SETTING,
            Code.KAFKA4_IGNORES_REST,
            Code.KAFKA4_IMAGE_DIFFERS,
            Code.KAFKA4_NOT_PROVEN,
            Code.KAFKA4_LACKS_CLASS,
            Code.KAFKA4_PLUGIN_UNKNOWN,
            Code.KAFKA4_REFUSES_CLIENTS,
            Code.KAFKA4_REFUSES_VALUE,
            Code.KAFKA4_WITHOUT_JMX,
            Code.CUSTOM_AUTHORIZER,
            Code.ANOTHER_MIGRATION,
            Code.LEFTOVERS_FOUND,
            Code.IMAGE_WRITES_TO_ZOOKEEPER,
            Code.CAPACITY_PARTLY_KNOWN,
            Code.TOPIC_AT_MIN_ISR,
            Code.TOPIC_NOT_REPLICATED,
            Code.SETTINGS_IGNORED_BY_KRAFT,
            Code.PASSWORD_BECOMES_PLAIN,
            Code.CONSUMERS_IN_ZOOKEEPER,
            Code.CONTROLLER_IS_KRAFT,
            Code.CONTROLLER_MISSING,
            Code.CONTROLLER_NOT_REFORMATTED,
            Code.CONTROLLER_CONFIG_REPLACED,
            Code.NO_BROKERS,
            Code.ZOOKEEPER_ACLS_SAMPLED,
            Code.ZOOKEEPER_ZNODES_OF_OTHERS,
            Code.PASSWORD_NOT_CHECKED,
            Code.REHEARSAL_UNKNOWN,
            Code.DYNAMIC_SETTINGS_TAKE_EFFECT,
            Code.DRY_START_IMPOSSIBLE,
            Code.DRY_START_PROGRAMS,
            Code.CHANGED_AFTER_CLAIM,
            Code.DELETION_UNDER_WAY,
            Code.TORN_LOG_TAIL,
            Code.BLANK_VOLUME,
            Code.BROKER_ZNODE_EXISTS,
            Code.CONTROLLERS_NOT_READY,
            Code.BROKERS_NOT_REGISTERED,
            Code.ZOOKEEPER_SESSION,
            Code.FATAL,
            Code.DRIVER_STATE,
        ),
        Unrun.JUDGEMENT,
    ),
    **dict.fromkeys(
        (
            Code.RIGHTS_UNKNOWN,
            Code.RIGHT_MISSING,
            Code.RUNNER_UNKNOWN,
            Code.ANOTHER_MIGRATION_UNKNOWN,
            Code.LEFTOVERS_UNKNOWN,
            Code.WRITERS_UNKNOWN,
            Code.BUDGETS_UNKNOWN,
            Code.CHANGES_UNKNOWN,
            Code.LIMITS_UNKNOWN,
            Code.POD_LABELS_UNKNOWN,
            Code.QUOTAS_UNKNOWN,
            Code.STORAGE_CLASSES_UNKNOWN,
            Code.DRY_START_UNKNOWN,
        ),
        Unrun.RIGHTS,
    ),
    **dict.fromkeys((Code.ADMISSION_POLICY_MISSING, Code.DRY_START_OFF, Code.ENDPOINT_NOT_ALLOWED), Unrun.CHART),
    **dict.fromkeys(
        (Code.REASSIGNMENTS_UNKNOWN, Code.REDUNDANCY_UNKNOWN, Code.BROKER_CONFIGURATION_UNKNOWN), Unrun.REQUESTS
    ),
    **dict.fromkeys((Code.BROKER_CREDENTIALS_MISSING, Code.AUTHENTICATION_FAILED), Unrun.SECRETS),
    **dict.fromkeys(
        (
            Code.CHANGE_REFUSED,
            Code.DRY_START_UNFENCED,
            Code.INTER_BROKER_PATH_CLOSED,
            Code.INTER_BROKER_PATH_UNKNOWN,
            Code.ZOOKEEPER_USERS_UNKNOWN,
            Code.DISK_FULL,
            Code.OUT_OF_MEMORY,
            Code.WRONG_CLUSTER_ID,
            Code.CERTIFICATE_EXPIRED,
            Code.CERTIFICATE_NAME_MISMATCH,
            Code.CERTIFICATE_NOT_TRUSTED,
            Code.CERTIFICATE_REFUSED,
            Code.NAME_NOT_RESOLVED,
            Code.LOG_DIR_FAILED,
        ),
        Unrun.SURROUNDINGS,
    ),
    **dict.fromkeys(
        (
            Code.FIELDS_MANAGED_BY_OTHERS,
            Code.VOLUME_NEEDED_IN_RELEASE,
            Code.OVERLAY_LEFT,
            Code.OWNED_BY_CONTROLLER,
            Code.TEMPLATE_CHANGED,
            Code.STATEFUL_SET_RENAMED,
            Code.CHART_CHANGED,
        ),
        Unrun.OBJECTS,
    ),
    **dict.fromkeys((Code.SURVEY_UNKNOWN, Code.IMAGE_NOT_PULLABLE, Code.IMAGES_NOT_TRIED), Unrun.NODES),
    **dict.fromkeys(
        (
            Code.BROKERS_TOO_OLD,
            Code.SETTING_REMOVED,
            Code.PROTOCOL_IN_FILE,
            Code.BROKER_IDENTITY_UNKNOWN,
            Code.SETTING_NOT_SERVED,
            Code.ADDRESSES_CACHED_FOR_EVER,
            Code.DRY_START_DIFFERS,
            Code.DRY_START_FAILED,
            Code.DRY_START_LEAVES_OUT,
            Code.DRY_START_OTHER_IMAGE,
            Code.DRY_START_REFUSED,
            Code.CONFIG_REFUSED,
            Code.MIGRATION_ZNODE_CONFLICT,
        ),
        Unrun.START,
    ),
    **dict.fromkeys((Code.IDENTITY_CHANGED, Code.QUORUM_LOST, Code.ZOOKEEPER_CONTRADICTS), Unrun.RECORDED),
}
"""Why each of the other fixes is not run."""
