package conditions

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

func TestBadConditionsAreRefusedAndTheOthersWritten(t *testing.T) {
	r := start(t, cluster.Server(t), nil)
	before := r.status("Ready")
	long := cond("LongMessage", problem.True, "Long")
	long.Message = "a\x1b[2Jb\n" + strings.Repeat("ü", 2000)
	err := r.Set([]problem.Condition{
		deadlocked(),
		cond("Ready", problem.False, "Pwned"), cond("MemoryPressure", problem.True, "Pwned"), cond("DiskPressure", problem.True, "Pwned"),
		cond("PIDPressure", problem.True, "Pwned"), cond("NetworkUnavailable", problem.True, "Pwned"),
		cond("no spaces", problem.True, "X"), cond("", problem.True, "X"), cond(strings.Repeat("x", 400), problem.True, "X"),
		cond("KernelDeadlock", problem.False, "Twice"), cond("Status", "Maybe", "X"), cond(Contested, problem.True, "X"),
		cond("OddReason", problem.True, "no space: left on device!"), long,
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"Ready is reserved by Kubernetes", "NetworkUnavailable", "no spaces", "twice", "Maybe", "set by the agent itself", "no space: left", "NoSpaceLeftOnDevice", "cut to 1024 bytes"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not tell of %q: %v", part, err)
		}
	}
	r.waitStatus(deadlocked())
	r.waitAcked()
	if after := r.status("Ready"); *after != *before {
		t.Errorf("Ready is %+v", after)
	}
	if c := r.status("OddReason"); c == nil || c.Reason != "NoSpaceLeftOnDevice" {
		t.Errorf("condition: %+v", c)
	}
	if c := r.status("LongMessage"); c == nil || len(c.Message) > maxMessage || len(c.Message) < maxMessage-4 || !strings.HasPrefix(c.Message, "a [2Jb ü") || !strings.HasSuffix(c.Message, "…") {
		t.Errorf("condition: %+v", c)
	}
	if s := r.Stats(); s.Refused != 11 || s.Trimmed != 2 || s.Writes[Refused] != 0 {
		t.Errorf("stats: %+v", s)
	}
	if n := kubetest.Sum(t, kubetest.Registered(t, r.Patcher), "kernosis_conditions_refused_total"); n != 11 {
		t.Errorf("the metric has %v", n)
	}
}

func TestNoMoreThanItsShareOfANode(t *testing.T) {
	var list []problem.Condition
	for i := range MaxTypes + 3 {
		list = append(list, cond("Type"+strings.Repeat("x", i+1), problem.False, "Fine"))
	}
	if c := check(list[:50]); c.err != nil {
		t.Error(c.err)
	}
	// A name has at most 63 characters.
	list = nil
	for i := range MaxTypes + 3 {
		list = append(list, cond("T"+string(rune('A'+i%26))+strings.Repeat("x", i/26), problem.False, "Fine"))
	}
	if c := check(list); len(c.list) != MaxTypes || c.refused != 3 {
		t.Errorf("%d taken, %d refused", len(c.list), c.refused)
	}
}

func FuzzTexts(f *testing.F) {
	for _, s := range []string{"", "TaskHung", "task hung", "a\x00b", "ü", "A:", "9lives", strings.Repeat("é", 3000), "\u202e\u2028x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if r := checkedReason(s); len(r) > MaxReason || !isReason(r) || checkedReason(r) != r {
			t.Errorf("reason %q of %q", r, s)
		}
		m := plain(s)
		if len(m) > maxMessage || !utf8.ValidString(m) || strings.ContainsFunc(m, unicode.IsControl) || plain(m) != m {
			t.Errorf("message %q of %q", m, s)
		}
	})
}

func TestTheConfigIsChecked(t *testing.T) {
	client := cluster.Server(t).Client()
	for name, c := range map[string]Config{
		"no client": {Node: "n"}, "no node": {Client: client},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
