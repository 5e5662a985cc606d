package ingest

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/ingest/client"
)

// FuzzReport sends arbitrary input: it is refused with a reason, or the resulting events are
// within their bounds.
func FuzzReport(f *testing.F) {
	for _, seed := range []string{
		`{"source":"gpu-monitor","validFor":"30s","events":[{"severity":"info","timestamp":"2026-01-02T15:04:05.123Z","reason":"A","message":"a\u001b"}],"conditions":[{"type":"GPUHot","status":true,"transition":"2026-01-02T15:04:05Z","reason":"Hot","message":"92 °C"}]}`,
		`{"source":"gpu-monitor","conditions":[{"type":"GPUUnhealthy","status":"Unknown"},{"type":"GPUHot","status":"False"}]}`,
		`{"source":"nobody","x":1,"x":2}`, `{"source":null,"events":[null]}`, `[]`, `{"source":"gpu-monitor","conditions":[{"status":[]}]}`,
	} {
		f.Add("", []byte(seed))
	}
	f.Fuzz(func(t *testing.T, key string, raw []byte) {
		in, err := New(Config{Sources: sources()})
		if err != nil {
			t.Fatal(err)
		}
		reported := 0
		in.start(func(ev *event.Event) {
			d := ev.Check
			if d == nil {
				return // an event of kind source
			}
			reported++
			if len(d.Message) > client.MaxMessage || !utf8.ValidString(d.Message) || display.Safe(d.Message, len(d.Message)) != d.Message {
				t.Errorf("message %q", d.Message)
			}
			if d.Reason != "" && !pascalCase.MatchString(d.Reason) {
				t.Errorf("reason %q", d.Reason)
			}
			if ev.BootTime <= 0 || ev.Time.IsZero() {
				t.Errorf("no time: %+v", ev)
			}
			// As in the journal.
			if _, err := json.Marshal(ev); err != nil {
				t.Error(err)
			}
		})
		answer, err := in.Report(Peer{}, key, raw)
		if refusal, ok := errors.AsType[*Refusal](err); ok {
			if reported > 0 || refusal.Message == "" || !utf8.ValidString(refusal.Error()) || refusal.status() < 400 {
				t.Errorf("reported %d, refused with %+v", reported, refusal)
			}
			for _, fl := range refusal.Fields {
				if len(fl.Message) > 500 || len(fl.Field) > 500 {
					t.Errorf("long answer %+v", fl)
				}
			}
			return
		}
		if err != nil || answer.Error != "" {
			t.Errorf("%v, %+v", err, answer)
		}
		if reported > client.MaxEvents+client.MaxConditions {
			t.Errorf("%d reported", reported)
		}
	})
}
