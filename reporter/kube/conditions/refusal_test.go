package conditions

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// A policy that is newer than a condition refuses its heartbeat: changes of other conditions are
// still written, and the heartbeat does not cause a storm of writes.
func TestARefusedHeartbeat(t *testing.T) {
	server := cluster.Server(t)
	p, config := newProxy(t, server)
	r := start(t, server, func(c *Config) { c.Client, c.Heartbeat = kubetest.Clientset(t, config), time.Second })
	stalled := cond("DiskStalled", problem.True, "Stalled")
	r.set(healthy(), stalled)
	r.waitStatus(stalled)
	r.waitAcked()
	p.do(refuse(t, "DiskStalled", http.StatusForbidden))
	r.waitFor("refused heartbeats", func() bool { return r.Stats().Writes[Forbidden] >= 6 })
	r.set(deadlocked(), stalled)
	r.waitStatus(deadlocked())
	for i, sent := 4, p.sent(); i < len(sent); i++ {
		// They are sent 500 ms apart, but one may be delayed on the way.
		if d := sent[i].Sub(sent[i-4]); d < 300*time.Millisecond {
			t.Errorf("5 writes within %s", d)
		}
	}
}

// refuse answers as a policy does to patches that contain a type: with code, which is 422, or 403
// if the policy uses that.
func refuse(t *testing.T, name string, code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		if !bytes.Contains(text, []byte(name)) {
			return false
		}
		return kubetest.Answer(w, code, map[int]string{http.StatusForbidden: "Forbidden", http.StatusUnprocessableEntity: "Invalid"}[code])
	}
}

// If a policy refuses one type, the others are still written.
func TestOneRefusedTypeDoesNotHoldUpTheOthers(t *testing.T) {
	server := cluster.Server(t)
	for outcome, code := range map[Outcome]int{Refused: http.StatusUnprocessableEntity, Forbidden: http.StatusForbidden} {
		t.Run(string(outcome), func(t *testing.T) {
			p, config := newProxy(t, server)
			p.do(refuse(t, "DiskStalled", code))
			r := start(t, server, func(c *Config) { c.Client = kubetest.Clientset(t, config) })
			others := []problem.Condition{deadlocked(), cond("ReadonlyFilesystem", problem.False, "FilesystemIsNotReadOnly")}
			r.set(append(others, cond("DiskStalled", problem.True, "Stalled"))...)
			for _, c := range others {
				r.waitStatus(c)
			}
			// So are later changes.
			r.set(healthy(), cond("DiskStalled", problem.True, "Stalled"))
			r.waitStatus(healthy())
			r.waitFor("the other is removed", func() bool { return r.status("ReadonlyFilesystem") == nil })
			if !r.Stats().Pending {
				t.Error("all is said to be acknowledged")
			}
			if s := r.Stats(); s.Writes[outcome] > 4 || s.Writes[outcome] < 2 {
				t.Errorf("stats: %+v", s)
			}
		})
	}
}

// An agent without permission does not try its conditions one by one, and writes at once when
// permission is granted.
func TestMissingRights(t *testing.T) {
	server := cluster.Server(t)
	p, config := newProxy(t, server)
	p.do(func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method == http.MethodPatch && kubetest.Answer(w, http.StatusForbidden, "Forbidden")
	})
	log := &testenv.LogBuffer{}
	r := start(t, server, func(c *Config) {
		c.Client, c.Log = kubetest.Clientset(t, config), slog.New(slog.NewTextHandler(log, nil))
	})
	list := []problem.Condition{deadlocked(), cond("DiskStalled", problem.True, "Stalled"), cond("ReadonlyFilesystem", problem.False, "FilesystemIsNotReadOnly")}
	r.set(list...)
	r.waitFor("five failures", func() bool { return r.Stats().Writes[Forbidden] >= 5 })
	p.do(func(http.ResponseWriter, *http.Request) bool { return false })
	sent := p.sent()
	for i, least := range []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, time.Second} {
		if gap := sent[i+1].Sub(sent[i]); gap < least-10*time.Millisecond {
			t.Errorf("write %d came after %s, want %s", i+1, gap, least)
		}
	}
	r.waitAcked()
	for _, c := range list {
		r.waitStatus(c)
	}
	if s := r.Stats(); s.Writes[Written] > 2 || s.Writes[Forbidden] > 6 {
		t.Errorf("stats: %+v", s)
	}
	text := log.String()
	for _, said := range []string{"can't write the conditions", "conditions are written again"} {
		if strings.Count(text, said) != 1 {
			t.Errorf("%q is not said once:\n%s", said, text)
		}
	}
}
