{{/*
What the operator may do, by function, with the reason beside each rule. No wildcards. In cluster-wide mode each becomes a
ClusterRole with a ClusterRoleBinding; with watchNamespaces a Role and a RoleBinding in each of these namespaces.
*/}}

{{- define "kraftbridge.rules.migrations" -}}
# The resource itself; patch also carries the finalizer and the adoption annotations.
- apiGroups: [kraftbridge.dev]
  resources: [kafkamigrations]
  verbs: [get, list, watch, patch, update]
# Everything that the operator remembers is in status.
- apiGroups: [kraftbridge.dev]
  resources: [kafkamigrations/status]
  verbs: [get, patch, update]
# Events on transitions; patch counts repetitions.
- apiGroups: ["", events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# Why the API server refuses the pod of a verification's or rehearsal's Job: nothing but an event of the Job tells.
- apiGroups: [""]
  resources: [events]
  verbs: [list]
# One Lease per driven StatefulSet keeps other operators and resources out.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, patch, update, delete]
{{- end }}

{{- define "kraftbridge.rules.brokers" -}}
# Brokers' StatefulSets: read their configuration, overlay it phase by phase, give it back.
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, patch, update]
# Which pod runs which configuration; a pod that hangs beyond its grace period is deleted with a UID precondition.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
# Dry start: fenced copies of the brokers' pods are created behind a scheduling gate, inspected, and let go by a patch.
- apiGroups: [""]
  resources: [pods]
  verbs: [create, patch]
# Restarts go through the Eviction API, so that PodDisruptionBudgets count.
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
# Preflight: a budget that forbids every eviction would stop the roll. The controllers get a budget of their own.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, create, patch]
# An unbound claim would keep a restarted broker from coming back.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list]
# Preflight: whether quotas and limits leave room for the controllers.
- apiGroups: [""]
  resources: [resourcequotas, limitranges]
  verbs: [list]
# Properties style: the user's file is read, and one ConfigMap per phase is written beside it; the final manifest is one too.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, patch, update]
# Client credentials named in spec are read; values that the operator replaced are kept in a Secret of its own.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch, update]
{{- end }}

{{- define "kraftbridge.rules.controllers" -}}
# The quorum's StatefulSet. It is deleted by a rollback only (its volumes are kept): the quorum outlives operator and chart.
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, update, delete]
# The quorum's headless Service: voters find each other by its names. Listed: what a copy's init containers ask the API server for.
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, create, patch, update]
# Rendered controller properties: each ConfigMap is immutable and named by its content, so a change makes another one.
# delete and list remove those that no pod mounts any more.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, patch, update, delete]
# Certificate and token of the log servers in the controllers' pods; with listener.generate the authority, the certificates and the logins of the listener,
# which are created and renewed; the secret of Spark's drivers and executors. Nothing is deleted.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch, update]
# A pod that names pull Secrets gets none of its service account: those are named, too.
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get]
# Fences the controllers' listener, and the pods of dry starts, rehearsals and verifications.
# Listed only to name those that keep the controllers from a broker.
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, create, patch, update]
# UIDs of the voters' volumes: a blank volume under a formatted voter must not start.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list]
# Why a controller does not start is in its last log lines; the status quotes them.
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
{{- if or .Values.rbac.deleteObjects (.Capabilities.APIVersions.Has "security.openshift.io/v1") }}
# The operator deletes none of these. OwnerReferencesPermissionEnforcement (OpenShift) lets only those make the controllers' StatefulSet the owner
# of an object who may delete the object.
- apiGroups: [""]
  resources: [services, secrets]
  verbs: [delete]
# As above: the controllers' NetworkPolicy.
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [delete]
# As above: the controllers' PodDisruptionBudget.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [delete]
{{- end }}
{{- end }}

{{- define "kraftbridge.rules.verification" -}}
# One SparkApplication per verification run.
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [get, list, watch, create, patch, delete]
# The same as a Job where no Spark operator is installed. A rehearsal and the watch of the tree during Kafka's copy are always Jobs.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
# The volume that keeps the tree from before the takeover; it goes with the migration.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [create]
# The run's request, go and verdict; delete removes the ConfigMaps of old runs.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, patch, update, delete]
# Each run's account may read and patch that run's ConfigMap only: a Role by name. The API server refuses a Role or RoleBinding
# with rights that the operator does not have itself. Both are owned by a ConfigMap that goes with the run, so none is deleted here.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [create]
# Why a driver does not start or failed.
- apiGroups: [""]
  resources: [pods, pods/log]
  verbs: [get, list]
{{- end }}

{{- define "kraftbridge.rules.letGo" -}}
# The Job before an uninstallation: which migrations there are, and the removal of the finalizer from those at rest.
- apiGroups: [kraftbridge.dev]
  resources: [kafkamigrations]
  verbs: [get, list, patch]
{{- end }}
