package trigger_test

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/trigger"
)

// BenchmarkProblemThatGoesOn measures a temporary problem whose count grows, as in a flood, with
// 100 triggers. It starts nothing.
func BenchmarkProblemThatGoesOn(b *testing.B) {
	e := engineWith(b, hundred(anyOOM)...)
	p := hit(start)
	e.Problem(p, db, start)
	b.ReportAllocs()
	for b.Loop() {
		e.Problem(p, db, start)
	}
}

func BenchmarkProblemThatBegins(b *testing.B) {
	e := engineWith(b, `{operationSet: s, cooldown: 0s, rateLimit: {count: 1000, within: 1s}, sourceTemplate: {problemTemplate: {rules: [oom-kill]}}}`)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		now := after(time.Duration(i) * 10 * time.Millisecond)
		if p := hit(now); len(e.Problem(p, db, now)) != 1 {
			b.Fatal(e.Stats())
		}
	}
}

// BenchmarkAlertThatGoesOn measures an alert that is sent again, with 100 triggers of which one
// matches.
func BenchmarkAlertThatGoesOn(b *testing.B) {
	e := engineWith(b, append(hundred(`{operationSet: s, nodeName: n1, sourceTemplate: {prometheusAlertTemplate: {regexp: {alertName: ^Other$}}}}`), diskFull)...)
	a := full(b)
	b.ReportAllocs()
	for b.Loop() {
		e.Alert(a, trigger.Known{}, start)
	}
}

func BenchmarkDecodeWebhook(b *testing.B) {
	data := payload(b, "webhook/filesystem.json")
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := trigger.DecodeWebhook(data); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkState measures the state of a full engine.
func BenchmarkState(b *testing.B) {
	e := engineWith(b, `{operationSet: s, rateLimit: {count: 1000}, sourceTemplate: {problemTemplate: {rules: [oom-kill]}}}`)
	for i := range 5000 {
		now := after(time.Duration(i) * time.Hour)
		e.Problem(firing("oom-kill", strconv.Itoa(i), now), nil, now)
	}
	size := 0
	for b.Loop() {
		data, err := json.Marshal(e.State())
		if err != nil {
			b.Fatal(err)
		}
		size = len(data)
	}
	b.ReportMetric(float64(size), "bytes")
}

func hundred(spec string) []string {
	var all []string
	for range 100 {
		all = append(all, spec)
	}
	return all
}
