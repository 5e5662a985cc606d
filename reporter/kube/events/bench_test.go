package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/kube/events"
)

// BenchmarkFirstEvent compares, alternating, the time from a fault until the API server has
// acknowledged its Event with the time of a bare POST of such an Event. 300 of each suffice:
// -benchtime 300x.
func BenchmarkFirstEvent(b *testing.B) {
	acked := make(chan time.Time, 1)
	a := newAgent(b, func(c *events.Config) { c.Acked = func(time.Time) { acked <- time.Now() } })
	a.sink.Unbind()
	var bare, sink []time.Duration
	i := 0
	for b.Loop() {
		i++
		now := time.Now()
		_, err := a.client.CoreV1().Events("default").Create(context.Background(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%s-bare-%d", a.node, i), Namespace: "default"},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: a.node}, Reason: "OOMKilling", Message: "killed", Type: "Warning",
			Source: corev1.EventSource{Component: "bench", Host: a.node}, Count: 1, FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now),
			ReportingController: "bench", ReportingInstance: a.node,
		}, metav1.CreateOptions{})
		bare = append(bare, time.Since(now))
		if err != nil {
			b.Fatal(err)
		}
		fault := time.Now()
		e := journal.Entry{Now: fault, Event: &event.Event{CPU: 1, Time: fault}, Transitions: []problem.Transition{{Problem: &problem.Problem{
			Rule: "bench", Group: strconv.Itoa(i), Reason: "OOMKilling", Message: "killed", Severity: problem.Warning,
			State: problem.Firing, FirstSeen: fault, LastSeen: fault,
		}}}}
		e.Seq, _, err = a.journal.Add(e)
		if err = errors.Join(err, a.journal.Flush()); err != nil {
			b.Fatal(err)
		}
		a.sink.Add(e)
		a.sink.Flush(e.Seq)
		sink = append(sink, (<-acked).Sub(fault))
	}
	slices.Sort(bare)
	slices.Sort(sink)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	b.ReportMetric(ms(bare[len(bare)/2]), "bare-ms")
	b.ReportMetric(ms(sink[len(sink)/2]), "sink-ms")
	b.ReportMetric(ms(bare[len(bare)*99/100]), "bare-p99-ms")
	b.ReportMetric(ms(sink[len(sink)*99/100]), "sink-p99-ms")
	b.ReportMetric(ms(sink[len(sink)/2])/ms(bare[len(bare)/2]), "sink/bare")
	b.ReportMetric(0, "ns/op")
}
