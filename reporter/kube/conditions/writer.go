package conditions

import (
	"encoding/json"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// writerOf returns the field manager that last wrote a condition's status, reason or message. If
// several managers own one of these fields, it prefers one that is not us. It returns "" if the
// Node does not show the writer, for example after the condition was removed.
func writerOf(node *corev1.Node, conditionType string) string {
	key := "k:{\"type\":" + strconv.Quote(conditionType) + "}"
	var writer string
	var newest time.Time
	for i := range node.ManagedFields {
		m := &node.ManagedFields[i]
		if m.FieldsV1 == nil || !owns(m.FieldsV1.GetRawBytes(), key) {
			continue
		}
		var at time.Time
		if m.Time != nil {
			at = m.Time.Time
		}
		if writer == "" || writer == FieldManager || m.Manager != FieldManager && at.After(newest) {
			writer, newest = m.Manager, at
		}
	}
	return writer
}

// owns reports whether a set of fields includes the condition's status, reason or message. Times
// don't count: a heartbeat claims nothing.
func owns(fields []byte, key string) bool {
	for _, step := range []string{"f:status", "f:conditions", key} {
		var level map[string]json.RawMessage
		if json.Unmarshal(fields, &level) != nil {
			return false
		}
		fields = level[step]
	}
	var of map[string]json.RawMessage
	if json.Unmarshal(fields, &of) != nil {
		return false
	}
	for _, name := range []string{"f:status", "f:reason", "f:message"} {
		if _, ok := of[name]; ok {
			return true
		}
	}
	return false
}
