package trigger_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/diagnose/trigger"
)

const one = `{"status":"firing","labels":{"alertname":"X"},"startsAt":"2026-03-01T11:58:07Z"}`

func TestRequestsThatAreRefused(t *testing.T) {
	hook := func(alerts string) string { return `{"version":"4","alerts":` + alerts + `}` }
	for text, want := range map[string]string{
		``:                              "webhook: want an object",
		`[]`:                            "webhook: want an object",
		`null`:                          "webhook: want an object",
		`{`:                             "webhook: unexpected end of JSON input",
		`{"version":"4"}`:               "webhook: has no alerts",
		`{"version":4,"alerts":[]}`:     "webhook: cannot unmarshal number into Go struct field webhook.version of type string",
		`{"version":"3","alerts":[]}`:   `webhook: version "3", want 4`,
		`{"Version":"4","alerts":[]}`:   `webhook: version "", want 4`,
		`{"alerts":[]}`:                 `webhook: version "", want 4`,
		`{"version":"4","version":"4"}`: `webhook: duplicate field "version"`,
		hook(`{}`):                      "alerts: want a list",
		hook(`null`):                    "alerts: want a list",
		hook(`[`+one+`]`) + `{}`:        "webhook: invalid character '{' after top-level value",
		hook(`[` + strings.Repeat(`{},`, 4096) + `{}]`): "alerts: more than 4096",
		strings.Repeat(" ", trigger.MaxAlertBody+1):     "webhook: 4194305 bytes, at most 4194304",
	} {
		if _, err := trigger.DecodeWebhook([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%.80s: %v, want %s", text, err, want)
		}
	}
	for text, want := range map[string]string{
		``:              "alerts: want a list",
		`{}`:            "alerts: want a list",
		`[`:             "alerts: EOF",
		`[{]`:           "alerts[0]: invalid character ']' looking for beginning of object key string",
		`[] []`:         "alerts: unexpected data after the list",
		`[` + one + `,`: "alerts[1]: EOF",
	} {
		if a, err := trigger.DecodeAlerts([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s: %v %+v, want %s", text, err, a, want)
		}
	}
}

// An invalid alert does not prevent the others from being read.
func TestAlertsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`null`:                                  "want an object",
		`7`:                                     "want an object",
		`{}`:                                    `status: "": want one of firing, resolved`,
		`{"status":"odd\u001b"}`:                `status: "odd\x1b": want one of firing, resolved`,
		`{"status":"firing"}`:                   "labels: want at least one",
		`{"status":"firing","labels":{"a":""}}`: "labels: want at least one",
		`{"status":"firing","labels":{"a":7}}`:  "cannot unmarshal number into Go struct field .Alert.labels of type string",
		`{"status":"firing","labels":{"a":"b","a":"c"}}`:                                                             `duplicate field "labels.a"`,
		`{"status":"firing","labels":{"":"b"}}`:                                                                      "labels: a name is empty",
		`{"status":"firing","labels":{"a":"b"},"startsAt":7}`:                                                        "Time.UnmarshalJSON: input is not a JSON string",
		`{"status":"firing","labels":{"a":"` + strings.Repeat("x", 4097) + `"}}`:                                     "labels.a: 4097 bytes, at most 4096",
		`{"status":"firing","labels":{"` + strings.Repeat("x", 257) + `":"b"}}`:                                      "labels: a name has 257 bytes, at most 256",
		`{"status":"firing","labels":{"a":"b"},"annotations":{"c":"` + strings.Repeat("x", 16385) + `"}}`:            "annotations.c: 16385 bytes, at most 16384",
		`{"status":"firing","labels":{"a":"b"},"generatorURL":"` + strings.Repeat("x", 16385) + `"}`:                 "generatorURL: 16385 bytes, at most 16384",
		`{"status":"firing","labels":{"a":"b"},"junk":"` + strings.Repeat("x", 65536) + `"}`:                         "65584 bytes, at most 65536",
		`{"status":"resolved","labels":{"a":"b"},"startsAt":"2026-03-01T11:58:07Z","endsAt":"2026-03-01T11:58:06Z"}`: "endsAt: is before startsAt",
		`{"status":"firing","labels":{` + many(65) + `}}`:                                                            "labels: 65, at most 64",
	} {
		a, err := trigger.DecodeWebhook([]byte(`{"version":"4","alerts":[` + text + `,` + one + `]}`))
		if err != nil || len(a.Alerts) != 1 || a.Alerts[0].Name() != "X" || len(a.Refused) != 1 || a.Refused[0].Error() != "alerts[0]: "+want {
			t.Errorf("%.80s: %+v %v, want %s", text, a, err, want)
		}
	}
	// If there are many, the first are listed.
	a, err := trigger.DecodeAlerts([]byte(`[` + strings.Repeat(`{},`, 100) + one + `]`))
	if err != nil || len(a.Alerts) != 1 || len(a.Refused) != 17 || a.Refused[16].Error() != "and 84 more" {
		t.Error(a, err)
	}
	// Keys that a later Alertmanager adds are ignored.
	a, err = trigger.DecodeWebhook([]byte(`{"version":"4","receiver":"x","new":{},"alerts":[{"new":1,` + one[1:] + `]}`))
	if err != nil || len(a.Alerts) != 1 {
		t.Error(a, err)
	}
}

func many(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"l%d":"x"`, i))
	}
	return strings.Join(all, ",")
}

func FuzzDecodeWebhook(f *testing.F) {
	f.Add(payload(f, "webhook/filesystem.json"))
	f.Add([]byte(`{"version":"4","alerts":[` + one + `,null]}`))
	f.Add([]byte(`{"version":"4","alerts":[{"status":"resolved","labels":{"a":"\ud800"},"endsAt":"9999-12-31T23:59:59Z"}]}`))
	fuzzAlerts(f, trigger.DecodeWebhook)
}

func FuzzDecodeAlerts(f *testing.F) {
	f.Add(payload(f, "alerts/pods.json"))
	f.Add([]byte(`[` + one + `]`))
	f.Add([]byte(`[{"labels":{"alertname":"X","namespace":"a","pod":"b","node":"N:1"}}]`))
	fuzzAlerts(f, trigger.DecodeAlerts)
}

// Any input is bounded, and a Diagnosis that results from it is valid for the API server.
func fuzzAlerts(f *testing.F, decode func([]byte) (*trigger.Alerts, error)) {
	matchers := matchersOf(f,
		`{operationSet: s, cooldown: 0s, sourceTemplate: {prometheusAlertTemplate: {regexp: {alertName: ""  , startsAt: ".*"},
			nodeNameReferenceLabel: node, podNamespaceReferenceLabel: namespace, podNameReferenceLabel: pod, containerReferenceLabel: container, parameterInjectionLabels: [a, alertname]}}}`,
		`{operationSet: s, nodeName: n7, sourceTemplate: {prometheusAlertTemplate: {regexp: {labels: {alertname: ""}}, parameterInjectionLabels: [alertname]}}}`)
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := decode(data)
		if err != nil {
			if len(err.Error()) > 1024 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		e := engineOf(t, matchers...)
		for _, alert := range a.Alerts {
			if len(alert.Labels) == 0 || len(alert.Labels) > 64 || len(alert.Annotations) > 64 {
				t.Errorf("%d labels, %d annotations", len(alert.Labels), len(alert.Annotations))
			}
			for _, dx := range e.Alert(alert, trigger.Known{}, start) {
				acceptable(t, dx)
			}
			none(t, e.Alert(alert, trigger.Known{}, start))
			if _, err := json.Marshal(e.State()); err != nil {
				t.Error(err)
			}
		}
		for _, err := range a.Refused {
			if len(err.Error()) > 1024 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		}
	})
}
