package node

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func KmsgTail(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name: "kmsg-tail",
		Doc: "Copies the last lines of the kernel log, with time and level, to artifact kmsg.txt, and counts them. By default it omits lines that " +
			"processes wrote to /dev/kmsg: a process with that permission can imitate kernel lines.",
		Effect: operation.Collect,
		Parameters: []operation.Parameter{
			{Name: "lines", Doc: "maximum number of lines, the last ones", Kind: operation.Integer, Default: "200", Max: 20_000},
			{Name: "contains", Doc: "only lines with this text, case-insensitive", Kind: operation.String},
			{Name: "level", Doc: "only lines of this level or worse", Kind: operation.Enum, Default: "debug", Values: levelNames()},
			{Name: "maxAge", Doc: "only lines not older than this; 0s: all", Kind: operation.Duration, Default: "0s"},
			{Name: "userLines", Doc: "include lines written by processes", Kind: operation.Boolean, Default: "false"},
		},
		Results: []operation.Result{
			{Name: "matching", Doc: "matching lines"},
			{Name: "copied", Doc: "lines in kmsg.txt"},
			{Name: "levels", Doc: "matching lines by level: err=3 warning=10"},
			{Name: "lastLine", Doc: "last of them"},
			{Name: "lastAge", Doc: "its age"},
			{Name: "worstLine", Doc: "last line of the worst level"},
			{Name: "worstLevel", Doc: "that level"},
			operation.NoteResult(),
		},
		Run: host(h).kmsgTail,
	})
}

// levelNames returns syslog's level names, by number.
func levelNames() []string {
	return []string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}
}

// logLine is a line of the kernel's log.
type logLine struct {
	at    time.Duration // by the clock that dmesg shows
	age   time.Duration
	level int
	user  bool
	text  string
}

func (h host) kmsgTail(ctx context.Context, call *operation.Call) (operation.Output, error) {
	f := operation.NewFinding()
	v := call.Parameters
	most := max(1, int(v.Int("lines")))
	wanted, worst := strings.ToLower(v["contains"]), slices.Index(levelNames(), v["level"])
	maxAge := v.Duration("maxAge")
	var tail []logLine // a ring buffer once it is full
	var matching int
	var counts [8]int
	var worstLine *logLine
	lost, err := h.FS.KernelLog(ctx, func(r *hostfs.KernelRecord) bool {
		switch {
		case r.Facility != 0 && !v.Bool("userLines"), r.Level > worst:
			return true
		case maxAge > 0 && r.Age() > maxAge:
			return true
		case wanted != "" && !strings.Contains(strings.ToLower(string(r.Text)), wanted):
			return true
		}
		line := logLine{
			at: r.Time, age: r.Age(), level: r.Level & 7, user: r.Facility != 0,
			text: display.Safe(string(r.Text), operation.MaxLogLine),
		}
		if matching++; len(tail) < most {
			tail = append(tail, line)
		} else {
			tail[(matching-1)%most] = line
		}
		counts[line.level]++
		if worstLine == nil || line.level <= worstLine.level {
			worstLine = &line
		}
		return true
	})
	if err != nil {
		return operation.Output{}, fmt.Errorf("read the kernel log (may need CAP_SYSLOG): %w", err)
	}
	if lost {
		f.Note("some lines were overwritten while they were read, or unreadable")
	}
	if start := matching % most; matching > most {
		tail = append(tail[start:len(tail):len(tail)], tail[:start]...)
		f.Note("the first %d of %d matching lines are not copied", matching-most, matching)
	}
	f.Int("matching", int64(matching))
	f.Int("copied", int64(len(tail)))
	f.Text("levels", levelCounts(counts))
	if len(tail) > 0 {
		last := &tail[len(tail)-1]
		f.Text("lastLine", last.text)
		f.Text("lastAge", last.age.Truncate(time.Millisecond).String())
		f.Text("worstLine", worstLine.text)
		f.Text("worstLevel", levelNames()[worstLine.level])
	}
	err = f.Artifact(call, "kmsg.txt", func(w *operation.Page) {
		for i := range tail {
			tail[i].write(w)
		}
	})
	return f.Output(nil), err
}

func levelCounts(counts [8]int) string {
	var out []string
	for level, n := range counts {
		if n > 0 {
			out = append(out, levelNames()[level]+"="+strconv.Itoa(n))
		}
	}
	return strings.Join(out, " ")
}

// write adds the line to kmsg.txt, with the time as in dmesg.
func (l *logLine) write(w *operation.Page) {
	user := ""
	if l.user {
		user = " (written by a process)"
	}
	us := l.at.Microseconds()
	w.Printf("[%5d.%06d] %s%s: %s\n", us/1e6, us%1e6, levelNames()[l.level], user, l.text)
}
