{{/* Prefix of every object's name; at most 40 characters, so that suffixes fit into 63. */}}
{{- define "kraftbridge.fullname" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* Prefix of the names of cluster-scoped objects. Two releases of one name in two namespaces have different ones; neither part contains a dot. */}}
{{- define "kraftbridge.clusterName" -}}
{{- $name := include "kraftbridge.fullname" . -}}
{{- if eq $name .Release.Namespace -}}{{ $name }}{{- else -}}{{ printf "%s.%s" .Release.Namespace $name }}{{- end -}}
{{- end }}

{{- define "kraftbridge.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kraftbridge.labels" -}}
{{ include "kraftbridge.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Reference of an image: digest before tag before appVersion. Takes a dict of image and root. */}}
{{- define "kraftbridge.image" -}}
{{- $repository := .image.repository -}}
{{- if not (contains "/" $repository) -}}
{{- $registry := required "image.registry is needed: this chart is not packaged by a release, so it names no registry. Push the images with `make images REGISTRY=registry.example.com/kraftbridge` and install with --set image.registry=registry.example.com/kraftbridge" .root.Values.image.registry -}}
{{- $repository = printf "%s/%s" $registry $repository -}}
{{- end -}}
{{- if .image.digest -}}
{{ $repository }}@{{ .image.digest }}
{{- else -}}
{{ $repository }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end -}}
{{- end }}

{{- define "kraftbridge.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "kraftbridge.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end -}}
{{- end }}

{{/* The operator's name as the API server sees it. */}}
{{- define "kraftbridge.operatorUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "kraftbridge.serviceAccountName" . }}
{{- end }}

{{- define "kraftbridge.policyName" -}}
{{ include "kraftbridge.clusterName" . }}-locked-statefulsets
{{- end }}

{{/* Namespaces in which verifications run, as a JSON list. */}}
{{- define "kraftbridge.verifierNamespaces" -}}
{{- if .Values.verifier.namespaces -}}
{{ toJson (uniq .Values.verifier.namespaces) }}
{{- else if .Values.watchNamespaces -}}
{{ toJson (uniq .Values.watchNamespaces) }}
{{- else -}}
{{ toJson (list .Release.Namespace) }}
{{- end -}}
{{- end }}

{{/* Annotations of what exists before an uninstallation only; takes the weight. What refused an uninstallation stays, so that its log can be read. */}}
{{- define "kraftbridge.preDelete" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
