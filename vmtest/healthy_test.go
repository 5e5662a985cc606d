package vmtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

const (
	// busyFor is how long the machine is busy.
	busyFor = time.Minute
	// agentMemory is how much memory the agent may use, in KiB, without its program's pages, which
	// belong to the page cache: it normally uses about 30 MiB.
	agentMemory = 64 << 10
)

// TestHealthy makes the machine do, all at once and for a minute, what healthy machines do,
// including much that resembles a fault: the agent must not report any of it as a fault.
func TestHealthy(t *testing.T) {
	if group := os.Getenv(vforkInto); group != "" {
		vfork(t, group)
		return
	}
	a := startShipped(t, "--listen", "127.0.0.1:0")
	t.Run("busy-minute", func(t *testing.T) {
		a.In(t)
		conditions := shippedConditions(t)
		a.Wait("conditions", 60*time.Second, func(entries []journal.Entry) bool {
			return !slices.ContainsFunc(conditions, func(c string) bool {
				return agenttest.Condition(entries, c).Status != problem.False
			})
		})
		network := newBusyNetwork(t, a)
		b := &busy{}
		b.add(diskLoads(t)...)
		b.add(mountLoads(t)...)
		b.add(processLoads(t)...)
		b.add(network.loads()...)
		n := len(a.Entries())
		watched := watchAgent(t, a)
		b.run(t, busyFor)
		watched()
		reported := a.Entries()
		quiet(t, reported[:n], true)
		quiet(t, reported[n:], false)
		// The agent was able to report a fault all the time.
		network.breakOne()
		a.Stop() // and reports losses not reported so far
		noLoss(t, a.Entries())
	})
}

// shippedConditions returns the types of all conditions of the rules in force.
func shippedConditions(t *testing.T) (types []string) {
	t.Helper()
	names, err := fs.Glob(detector.Shipped(), "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(detector.Shipped(), name)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Conditions map[string]any `yaml:"conditions"`
		}
		if err := yaml.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		for c := range file.Conditions {
			types = append(types, c)
		}
	}
	if len(types) == 0 {
		t.Fatal("the shipped rules have no conditions")
	}
	return types
}

// quiet fails the test if entries report any problem. While the agent starts, conditions are
// Unknown until their sources work.
func quiet(t *testing.T, entries []journal.Entry, start bool) {
	t.Helper()
	for _, e := range entries {
		if ev := e.Event; ev != nil && !harmless(ev) {
			t.Errorf("reported: %s", describe(ev))
		}
		for _, tr := range e.Transitions {
			if tr.Problem != nil {
				t.Errorf("problem: %+v", *tr.Problem)
			}
			if c := tr.Condition; c != nil && c.Status != problem.False && (!start || c.Status != problem.Unknown) {
				t.Errorf("condition: %+v", *c)
			}
		}
	}
}

// harmless reports whether an event is not a fault.
func harmless(ev *event.Event) bool {
	switch ev.Kind {
	case event.Canary:
		return true
	case event.Log: // including a line that reports recovery
		return true
	case event.Source: // "log" represents sources that are not configured
		return ev.SourceUp.Up || ev.SourceUp.Stem == "log"
	case event.DiskIO: // an unsupported command, which mkfs tries
		return ev.DiskIO.Error == "EOPNOTSUPP"
	case event.Check: // the agent's check of itself
		return ev.Check.Status == event.CheckOK
	case event.Gauge: // the machine's clock is not synchronised, which is a problem only after 15 minutes
		return ev.Gauge.Name == "clock-error"
	}
	return false
}

// describe formats an event including what its pointers refer to.
func describe(ev *event.Event) string {
	text, err := json.Marshal(ev)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// unhealthyTimes is how often in a row the agent may fail to respond in time that it is healthy;
// kubelet's failureThreshold is higher.
const unhealthyTimes = 2

// watchAgent checks every second until end is called that the agent is alive, healthy, and small
// enough.
func watchAgent(t *testing.T, a *agenttest.Agent) (end func()) {
	t.Helper()
	pid, health := a.PID(), a.Log.URL(t)+"/healthz"
	before := anonymousKiB(t, pid)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	largest, looks, ill, row := before, 0, 0, 0
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for ctx.Err() == nil {
			if err := healthy(health); err == nil {
				row = 0
			} else if ill++; row >= unhealthyTimes {
				t.Errorf("health of the agent: %v", err)
			} else {
				row++
				t.Logf("health of the agent: %v", err)
			}
			largest = max(largest, anonymousKiB(t, pid))
			looks++
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return func() {
		t.Helper()
		cancel()
		<-ended
		state, err := inject.Task{PID: pid, TID: pid}.State()
		if err != nil || state == 'Z' || a.PID() != pid {
			t.Errorf("the agent has not survived: state %c: %v", state, err)
		}
		t.Logf("agent: %d MiB before, %d at most, %d after; healthy %d times of %d",
			before>>10, largest>>10, anonymousKiB(t, pid)>>10, looks-ill, looks)
		if largest > agentMemory {
			t.Errorf("the agent took %d MiB, want at most %d", largest>>10, agentMemory>>10)
		}
	}
}

func healthy(url string) error {
	resp, err := (&http.Client{Timeout: testenv.Within(10 * time.Second)}).Get(url) //nolint:noctx // has its time-out
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}

// anonymousKiB returns the anonymous memory of a process.
func anonymousKiB(t *testing.T, pid int) int {
	t.Helper()
	n, err := numberIn(fmt.Sprintf("/proc/%d/status", pid), "RssAnon:")
	if err != nil {
		t.Error(err)
	}
	return n
}
