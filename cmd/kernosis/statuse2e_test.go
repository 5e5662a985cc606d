package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/cmd/kernosis/status"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// status reads what a real agent serves and writes, with no flag but the state folder.
func TestStatusOfAnAgent(t *testing.T) {
	testenv.OnlyInTestAll(t)
	address := kubetest.FreeAddress(t)
	p := newAgent(t, "--listen", address)
	root := os.Geteuid() == 0
	if !root {
		p.Args = append(p.Args, "--pin-root", "")
	}
	p.Start()
	var s status.State
	code := 0
	testenv.UntilShown(t, "a state that says all", 60*time.Second, func() (bool, string) {
		var out string
		code, out = command(t, "status", "--state-dir", p.State, "-o", "json")
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			t.Fatal(err)
		}
		// Reasons are in the journal, which is written after the metrics.
		waits := slices.ContainsFunc(s.Conditions, func(c problem.Condition) bool {
			return c.Reason == "" || c.Reason == problem.ReasonSourceNotStarted
		})
		return s.Agent.Health == "ok" && len(s.Conditions) > 10 && !waits && len(s.Sources) > 5, out
	})
	if s.Agent.Endpoint != "http://"+address || s.Agent.Version != version || s.Agent.PID == 0 || s.Agent.Started.IsZero() || s.Cost.RSSBytes < 1<<20 || !s.API.Known || s.API.Used || len(s.Unread) != 0 {
		t.Errorf("%+v", s)
	}
	for _, c := range s.Conditions {
		if c.Reason == "" || c.Message == "" || c.LastTransition.IsZero() {
			t.Errorf("%+v", c)
		}
	}
	for _, stem := range []string{"oomkill", "diskio"} {
		i := slices.IndexFunc(s.Sources, func(o status.Source) bool { return o.Name == stem })
		if i < 0 || root && s.Sources[i].State == status.Blind || !root && (s.Sources[i].State != status.Blind || s.Sources[i].Why == "") {
			t.Errorf("%s: %+v", stem, s.Sources)
		}
	}
	if want := map[status.Outcome]int{status.Healthy: output.ExitOK, status.Problems: output.ExitFailed}[s.Outcome]; code != want {
		t.Errorf("%s: exit code %d, want %d", s.Outcome, code, want)
	}
	if _, out := command(t, "status", "--state-dir", p.State); !strings.Contains(out, address+" answers ok") {
		t.Error(out)
	}
}
