package trigger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/kernosis/kernosis/collector/display"
)

// Limits for what senders of alerts may send.
const (
	// MaxAlertBody is the largest request in bytes: Prometheus sends 64 alerts at a time,
	// Alertmanager a whole group.
	MaxAlertBody = 4 << 20
	maxAlerts    = 4096
	maxAlert     = 64 << 10 // bytes
	maxLabels    = 64
	maxLabelName = 256
	maxLabelText = 4 << 10
	maxNoteText  = 16 << 10 // of an annotation or URL
	maxRefused   = 16       // errors that are listed one by one
)

// Alerts is the content of a request.
type Alerts struct {
	Alerts []*Alert
	// Refused has an error for each rejected alert, with its position. If there are many, it has
	// the first ones and the number of the rest.
	Refused []error
	// RefusedCount is the number of rejected alerts.
	RefusedCount int
	// Omitted is how many alerts Alertmanager has truncated from a webhook's request, because of
	// its max_alerts.
	Omitted int
}

// webhook is Alertmanager's webhook request, version 4. Keys that a later Alertmanager adds are
// ignored.
type webhook struct {
	Version         string          `json:"version"`
	TruncatedAlerts int             `json:"truncatedAlerts"`
	Alerts          json.RawMessage `json:"alerts"`
}

// DecodeWebhook decodes Alertmanager's webhook request, version 4. An error is about the whole
// request; a bad alert does not prevent the others from being read.
func DecodeWebhook(data []byte) (*Alerts, error) {
	if len(data) > MaxAlertBody {
		return nil, fmt.Errorf("webhook: %d bytes, at most %d", len(data), MaxAlertBody)
	}
	var w webhook
	if err := strictly(data, &w); err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	if w.Version != "4" {
		return nil, fmt.Errorf("webhook: version %.32q, want 4", w.Version)
	}
	if len(w.Alerts) == 0 {
		return nil, errors.New("webhook: has no alerts")
	}
	out := &Alerts{Omitted: max(w.TruncatedAlerts, 0)}
	return out, out.read(w.Alerts, true)
}

// DecodeAlerts decodes a list of alerts, as Prometheus sends it to an Alertmanager's /api/v1/alerts
// and /api/v2/alerts. Errors are as in [DecodeWebhook].
func DecodeAlerts(data []byte) (*Alerts, error) {
	if len(data) > MaxAlertBody {
		return nil, fmt.Errorf("alerts: %d bytes, at most %d", len(data), MaxAlertBody)
	}
	out := &Alerts{}
	return out, out.read(data, false)
}

// read decodes a list of alerts one by one: decoded at once, a list of empty alerts takes a hundred
// times its size in memory.
func (a *Alerts) read(data []byte, hook bool) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return errors.New("alerts: want a list")
	}
	for i := 0; d.More(); i++ {
		if i == maxAlerts {
			return fmt.Errorf("alerts: more than %d", maxAlerts)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return fmt.Errorf("alerts[%d]: %w", i, err)
		}
		alert, err := readAlert(raw, hook)
		if err == nil {
			a.Alerts = append(a.Alerts, alert)
			continue
		}
		if a.RefusedCount++; a.RefusedCount <= maxRefused {
			a.Refused = append(a.Refused, fmt.Errorf("alerts[%d]: %w", i, err))
		}
	}
	if a.RefusedCount > maxRefused {
		a.Refused = append(a.Refused, fmt.Errorf("and %d more", a.RefusedCount-maxRefused))
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("alerts: unexpected data after the list")
	}
	return nil
}

func readAlert(data []byte, hook bool) (*Alert, error) {
	if len(data) > maxAlert {
		return nil, fmt.Errorf("%d bytes, at most %d", len(data), maxAlert)
	}
	var w struct {
		Alert
		Status string `json:"status"` // only in a webhook
	}
	if err := strictly(data, &w); err != nil {
		return nil, err
	}
	a := &w.Alert
	if hook {
		switch w.Status {
		case "firing":
			a.EndsAt = time.Time{} // the status counts
		case "resolved":
			a.Over = true
		default:
			return nil, fmt.Errorf("status: %.32q: want one of firing, resolved", w.Status)
		}
	}
	if err := a.bound(); err != nil {
		return nil, err
	}
	if !a.EndsAt.IsZero() && a.EndsAt.Before(a.StartsAt) {
		return nil, errors.New("endsAt: is before startsAt")
	}
	return a, nil
}

// bound checks texts against their limits. Empty labels are removed.
func (a *Alert) bound() error {
	for n, v := range a.Labels {
		if v == "" {
			delete(a.Labels, n)
		}
	}
	if len(a.Labels) == 0 {
		return errors.New("labels: want at least one")
	}
	for _, l := range []struct {
		field string
		texts map[string]string
		most  int
	}{{"labels", a.Labels, maxLabelText}, {"annotations", a.Annotations, maxNoteText}} {
		if len(l.texts) > maxLabels {
			return fmt.Errorf("%s: %d, at most %d", l.field, len(l.texts), maxLabels)
		}
		for n, v := range l.texts {
			switch {
			case n == "":
				return fmt.Errorf("%s: a name is empty", l.field)
			case len(n) > maxLabelName:
				return fmt.Errorf("%s: a name has %d bytes, at most %d", l.field, len(n), maxLabelName)
			case len(v) > l.most:
				return fmt.Errorf("%s.%s: %d bytes, at most %d", l.field, display.Safe(n, maxLabelName), len(v), l.most)
			}
		}
	}
	if len(a.GeneratorURL) > maxNoteText {
		return fmt.Errorf("generatorURL: %d bytes, at most %d", len(a.GeneratorURL), maxNoteText)
	}
	return nil
}

// strictly decodes an object with exact, unique keys. Other programs would read "Labels" for
// "labels", or the second of duplicate keys, differently.
func strictly(data []byte, into any) error {
	if t := bytes.TrimLeft(data, " \t\r\n"); len(t) == 0 || t[0] != '{' {
		return errors.New("want an object")
	}
	strict, err := kjson.UnmarshalStrict(data, into, kjson.DisallowDuplicateFields)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err != nil {
		return errors.New(display.Safe(strings.TrimPrefix(err.Error(), "json: "), 256))
	}
	return nil
}
