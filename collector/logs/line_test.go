package logs

import (
	"strings"
	"testing"

	"github.com/kernosis/kernosis/collector/event"
)

func TestPriorityName(t *testing.T) {
	want := []string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}
	for level, name := range want {
		if got := PriorityName(level); got != name {
			t.Errorf("PriorityName(%d) = %q, want %q", level, got, name)
		}
	}
	for _, level := range []int{-1, 8, 30} {
		if got := PriorityName(level); got != "" {
			t.Errorf("PriorityName(%d) = %q, want none", level, got)
		}
	}
}

func TestAuthor(t *testing.T) {
	const longest = "15 bytes of it." // may hold anything
	for _, tt := range []struct {
		line Line
		want string
	}{
		{Line{Origin: "kernel", Text: []byte("md: md0 stopped.")}, "kernel"},
		{Line{Origin: "kernel", Text: []byte("INFO: task [1]: segfault a:4711 blocked for more than 120 seconds.")}, "kernel"},
		{Line{Origin: "kernel", Text: []byte("nvme nvme0: 8/0/0 default/read/poll queues")}, "kernel"},
		{Line{Origin: "kernel", Text: []byte(longest + "[1]: segfault at 0 ip 0 sp 0 error 4 in x")}, "process"},
		{Line{Origin: "kernel", Text: []byte("traps: " + longest + "[1] trap int3 ip:1 sp:1 error:0 in x")}, "process"},
		{Line{Origin: "kernel", Text: []byte(strings.Repeat(`\x0a`, 15) + "[1]: segfault at 0 ip 0 sp 0 error 4")}, "process"},
		{Line{Origin: "kernel", Text: []byte("\xff[1]: \xff[2]: unhandled exception: BTI, ESR 0x1")}, "process"},
		{Line{Origin: "kernel", Text: []byte(strings.Repeat("f", 255) + ": app: potentially unexpected fatal signal 11.")}, "process"},
		{Line{Origin: "kernel", Text: []byte(" in x[1,2+3]"), Continues: true}, "process"},
		{Line{Origin: "user", Text: []byte("app[1]: segfault at 0"), Continues: true}, "user"},
	} {
		if got := tt.line.Author(); got != tt.want {
			t.Errorf("%q of %s: %s, want %s", tt.line.Text, tt.line.Origin, got, tt.want)
		}
	}
}

func TestAuthorAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("under the race detector sync.Pool forgets at random; the same test runs without it")
	}
	l := Line{Origin: event.OriginKernel, Text: []byte("15 bytes of it.[1]: segfault at 0 ip 0 sp 0 error 4 in x")}
	if n := testing.AllocsPerRun(100, func() { l.Author() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
