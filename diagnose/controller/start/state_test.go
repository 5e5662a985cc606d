package start

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/reporter/kube/leader"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestTheStateIsNotWrittenForNothing(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	b.trigger("disk", "{cooldown: 0s, "+onNode[1:])
	r := b.control(nil)
	r.inForce(1)
	began := time.Now()
	saved := func(n float64) {
		t.Helper()
		testenv.Until(t, "the state is saved", deadline, func() bool { return r.metric("kernosis_trigger_state_saves_total", "outcome", "saved") == n })
	}
	if err := r.take(alert(began, "node", node)); err != nil {
		t.Fatal(err)
	}
	saved(1)
	for range 20 {
		if err := r.take(alert(began, "node", node)); err != nil { // sent again
			t.Fatal(err)
		}
	}
	r.all.Store(true) // and the save is retried
	r.enqueue("test", func(e *trigger.Engine) []*v1alpha1.Diagnosis {
		e.Alert(alert(began.Add(time.Second), "node", node), trigger.Known{}, time.Now())
		return nil
	})
	testenv.Until(t, "it can't be saved", deadline, func() bool { return r.metric("kernosis_trigger_state_saves_total", "outcome", "failed") > 0 })
	r.all.Store(false)
	saved(2)
	if failed, n := r.metric("kernosis_trigger_state_saves_total", "outcome", "failed"), float64(r.writes.Load()); n != 2+failed {
		t.Errorf("%v writes for 2 changes and %v failures", n, failed)
	}
}

// If the kinds are not installed, the rest of the controller keeps running, and everything starts
// once they are.
func TestKindsThatAreInstalledLater(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := kubetest.New(t, kubetest.Options{})
	b := &bench{t: t, server: server, namespace: server.Namespace(t)}
	r := b.controlIn(leader.Election{}, nil)
	testenv.Until(t, "the report", deadline, func() bool { return strings.Contains(r.log.String(), "can't watch triggers") })
	if err := r.take(alert(time.Now())); err == nil || err.Error() != "the controller is starting" {
		t.Error(err)
	}
	server.CRDs(t)
	testenv.Until(t, "it is ready", deadline, func() bool { return r.Ready() == nil })
	if n := strings.Count(r.log.String(), "can't watch triggers"); n != 1 {
		t.Errorf("it is reported %d times", n)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if u, ok := r.Ready().(*notNow); !ok || u.why != "the controller is shutting down" { //nolint:errorlint // returned by the method itself
		t.Error(u)
	}
}

func TestANamespaceThatEnds(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	b.trigger("disk", onNode)
	r := b.control(nil)
	r.inForce(1)
	if err := b.server.Client().CoreV1().Namespaces().Delete(t.Context(), b.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.take(alert(time.Now(), "node", node)); err != nil {
		t.Fatal(err) // a retry would be rejected again
	}
	if n := r.metric("kernosis_trigger_diagnoses_total", "trigger", "disk", "outcome", outcomeRefused); n != 1 || !strings.Contains(r.log.String(), "dropped it") {
		t.Errorf("%v are refused", n)
	}
}

// The metrics of a deleted Trigger are gone.
func TestMetricsOfTriggersThatAreGone(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	disk := b.trigger("disk", onNode)
	r := b.control(nil)
	r.inForce(1)
	if err := r.take(alert(time.Now(), "node", node)); err != nil {
		t.Fatal(err)
	}
	if err := b.objects.Delete(t.Context(), disk, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	r.inForce(0)
	for _, name := range []string{"kernosis_trigger_diagnoses_total", "kernosis_trigger_wanted_total", "kernosis_trigger_withheld_total"} {
		if n := r.metric(name); n != 0 {
			t.Errorf("%s is %v", name, n)
		}
	}
}

func FuzzState(f *testing.F) {
	e, err := trigger.NewEngine(trigger.Config{Namespace: "n"})
	if err != nil {
		f.Fatal(err)
	}
	good, _, err := encodeState(e.State(), maxState)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	for _, text := range []string{`{"version":1,"streams":[{"id":"00"}]}`, `{"version":1,"triggers":[{"name":"a","started":[null]}]}`, `[]`} {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := fmt.Fprint(z, text); err != nil {
			f.Fatal(err)
		}
		if err := z.Close(); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeState(data)
		if err != nil {
			return
		}
		e, err := trigger.NewEngine(trigger.Config{Namespace: "n"})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Restore(s); err != nil {
			return
		}
		again, _, err := encodeState(e.State(), maxState)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := decodeState(again); err != nil || e.Restore(s) != nil {
			t.Fatal(err)
		}
	})
}
