package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/ingest/client"
)

// wireStatus is a report as it is received: values with a format of their own are parsed later, so
// that a mistake in them is reported with its field.
type wireStatus struct {
	Source     *string         `json:"source"`
	ValidFor   *string         `json:"validFor"`
	Events     []wireEvent     `json:"events"`
	Conditions []wireCondition `json:"conditions"`
}

type wireEvent struct {
	Severity  string `json:"severity"`
	Timestamp string `json:"timestamp"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
}

type wireCondition struct {
	Type       string          `json:"type"`
	Status     json.RawMessage `json:"status"` // true, false, "True", "False", "Unknown"
	Transition string          `json:"transition"`
	Reason     string          `json:"reason"`
	Message    string          `json:"message"`
}

// decode decodes as the API server does: names are case-sensitive, unknown or repeated ones mistakes.
func decode(body []byte) (*wireStatus, []client.Field) {
	var w wireStatus
	strict, err := kjson.UnmarshalStrict(body, &w)
	if err != nil {
		return nil, []client.Field{decodeMistake(err)}
	}
	var fields []client.Field
	for _, e := range strict {
		f := client.Field{Message: display.Safe(e.Error(), 200)}
		if fe, ok := errors.AsType[kjson.FieldError](e); ok {
			f.Field = display.Safe(fe.FieldPath(), 100)
			f.Message = "unknown field"
			if strings.HasPrefix(e.Error(), "duplicate") {
				f.Message = "duplicate field"
			}
		}
		fields = append(fields, f)
	}
	if len(fields) > 0 {
		return nil, fields
	}
	return &w, nil
}

func decodeMistake(err error) client.Field {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return client.Field{Field: display.Safe(e.Field, 100), Message: "got " + display.Safe(e.Value, 60) + ", want " + wanted(e.Type.Kind().String())}
	}
	return client.Field{Message: "not JSON: " + display.Safe(strings.TrimPrefix(err.Error(), "json: "), 200)}
}

// wanted returns JSON's name for a Go kind.
func wanted(kind string) string {
	switch kind {
	case "slice":
		return "an array"
	case "struct":
		return "an object"
	}
	return "a " + kind
}

// clockSlack is how far in the future a time may be, in case the clock was set in between.
const clockSlack = time.Minute

// batch is a report that has been checked.
type batch struct {
	validFor   time.Duration
	events     []client.Event // messages bounded, times filled in
	conditions []client.Condition
}

// checker collects the mistakes and warnings of a report.
type checker struct {
	now      time.Time
	mistakes []client.Field
	warnings []client.Field
}

func (c *checker) errorf(field, format string, args ...any) {
	c.mistakes = append(c.mistakes, client.Field{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) warnf(field, format string, args ...any) {
	c.warnings = append(c.warnings, client.Field{Field: field, Message: fmt.Sprintf(format, args...)})
}

// batch checks the report itself, but not whether its source may report it.
func (c *checker) batch(w *wireStatus, heartbeat time.Duration) batch {
	b := batch{validFor: heartbeat}
	if w.ValidFor != nil {
		b.validFor = c.validFor(*w.ValidFor)
	}
	if len(w.Events) > client.MaxEvents {
		c.errorf("events", "%d, at most %d in a report", len(w.Events), client.MaxEvents)
		return b
	}
	if len(w.Conditions) > client.MaxConditions {
		c.errorf("conditions", "%d, at most %d in a report", len(w.Conditions), client.MaxConditions)
		return b
	}
	for i := range w.Events {
		b.events = append(b.events, c.event("events["+strconv.Itoa(i)+"].", &w.Events[i]))
	}
	for i := range w.Conditions {
		field := "conditions[" + strconv.Itoa(i) + "]."
		cond := c.condition(field, &w.Conditions[i])
		if slices.ContainsFunc(b.conditions, func(o client.Condition) bool { return o.Type == cond.Type }) {
			c.errorf(field+"type", "%s is listed twice", shown(cond.Type))
		}
		b.conditions = append(b.conditions, cond)
	}
	return b
}

func (c *checker) validFor(text string) time.Duration {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		c.errorf("validFor", "%s: want a duration such as \"90s\"", shown(text))
	case d < client.MinValid || d > client.MaxValid:
		c.errorf("validFor", "%v, want %v to %v", d, client.MinValid, client.MaxValid)
	}
	return d
}

func (c *checker) event(field string, w *wireEvent) client.Event {
	e := client.Event{Severity: client.Severity(w.Severity), Reason: w.Reason}
	if e.Severity != client.Info && e.Severity != client.Warn {
		c.errorf(field+"severity", "%s, want info or warn", shown(w.Severity))
	}
	c.reason(field+"reason", w.Reason, true)
	e.Timestamp = c.time(field+"timestamp", w.Timestamp)
	e.Message = c.message(field+"message", w.Message, w.Reason)
	return e
}

func (c *checker) condition(field string, w *wireCondition) client.Condition {
	out := client.Condition{Type: w.Type, Reason: w.Reason}
	if err := CheckType(w.Type); err != nil {
		c.errorf(field+"type", "%v", err)
	}
	switch s := string(w.Status); s {
	case "true", `"True"`:
		out.Status = client.True
	case "false", `"False"`:
		out.Status = client.False
	case `"Unknown"`:
		out.Status = client.Unknown
	case "", "null":
		c.errorf(field+"status", "is missing")
	default:
		c.errorf(field+"status", "%s, want true, false or \"Unknown\"", display.Safe(s, 60))
	}
	// The reason of a healthy condition comes from the configuration.
	c.reason(field+"reason", w.Reason, out.Status == client.True)
	out.Transition = c.time(field+"transition", w.Transition)
	out.Message = c.message(field+"message", w.Message, w.Reason)
	return out
}

func (c *checker) reason(field, reason string, mandatory bool) {
	switch {
	case reason == "" && mandatory:
		c.errorf(field, "is missing")
	case reason != "" && !pascalCase.MatchString(reason):
		c.errorf(field, "%s is not PascalCase (letters and digits, at most %d)", shown(reason), client.MaxReason)
	}
}

// time parses an RFC 3339 time. A missing time, Go's zero time, or one in the future becomes now. The
// clock may have been set back, so a future time is not a mistake; from clockSlack on it is a warning.
func (c *checker) time(field, text string) time.Time {
	if text == "" {
		return c.now
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	switch {
	case err != nil:
		c.errorf(field, "%s: want a time such as 2026-01-02T15:04:05Z", shown(text))
		return c.now
	case t.IsZero():
		return c.now
	case t.After(c.now):
		if t.After(c.now.Add(clockSlack)) {
			c.warnf(field, "%s is in the future, treated as now", shown(text))
		}
		return c.now
	}
	return t
}

// message makes a text safe to display, with at most client.MaxMessage bytes; if empty, the reason.
func (c *checker) message(field, text, reason string) string {
	trimmed := strings.TrimSpace(text)
	out := display.Safe(trimmed, len(trimmed))
	if out != trimmed && len(trimmed) <= client.MaxMessage {
		c.warnf(field, "characters that can't be shown are escaped")
	}
	if len(out) > client.MaxMessage {
		c.warnf(field, "cut at %d bytes", client.MaxMessage)
		out = display.Bounded(trimmed, client.MaxMessage)
	}
	if out == "" {
		return reason
	}
	return out
}

// shown returns untrusted text quoted for a message.
func shown(s string) string {
	raw, _ := json.Marshal(display.Safe(s, 60)) // a string can't fail
	return string(raw)
}
