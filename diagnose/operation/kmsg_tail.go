package operation

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// maxLogLine is more than the kernel prints in a line (1 KiB), escapes apart.
const maxLogLine = 2 << 10

// KmsgTail returns the built-in kmsg-tail.
func KmsgTail(h Host) Builtin {
	return bounded(Builtin{
		Name: "kmsg-tail",
		Doc: "Copies the last lines of the kernel's log to kmsg.txt, with time and level, and counts them. Lines that processes have written to /dev/kmsg " +
			"are left out unless asked for: anybody with the right to could make them look like the kernel's.",
		Effect: Collect,
		Parameters: []Parameter{
			{Name: "lines", Doc: "lines to copy at most: the last ones", Kind: Integer, Default: "200", Max: 20_000},
			{Name: "contains", Doc: "only lines that have this text, capital or not", Kind: String},
			{Name: "level", Doc: "only lines of this level or a worse one", Kind: Enum, Default: "debug", Values: levelNames()},
			{Name: "maxAge", Doc: "only lines that are not older; 0s: all there are", Kind: Duration, Default: "0s"},
			{Name: "userLines", Doc: "also lines that processes have written", Kind: Boolean, Default: "false"},
		},
		Results: []Result{
			{"matching", "lines that match"},
			{"copied", "how many of them are in kmsg.txt"},
			{"levels", "how many match by level: err=3 warning=10"},
			{"lastLine", "the last of them"},
			{"lastAge", "how long ago it was written"},
			{"worstLine", "the last one of the worst level"},
			{"worstLevel", "that level"},
			noteResult(),
		},
		Run: func(ctx context.Context, call *Call) (Output, error) { return h.kmsgTail(ctx, call) },
	})
}

// levelNames are syslog's, by number.
func levelNames() []string {
	return []string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}
}

// logLine is a line of the kernel's log.
type logLine struct {
	seq   uint64
	at    time.Duration // by the scheduler's clock, as dmesg shows it
	age   time.Duration
	level int
	user  bool
	text  string
}

func (h Host) kmsgTail(ctx context.Context, call *Call) (Output, error) {
	f := newFinding()
	v := call.Parameters
	most := max(1, int(v.Int("lines")))
	wanted, worst := strings.ToLower(v["contains"]), levelNumber(v["level"])
	maxAge := v.Duration("maxAge")
	var tail []logLine // a ring, once it is full
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
		line := newLogLine(r)
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
		return Output{}, fmt.Errorf("read the kernel's log (may need CAP_SYSLOG): %w", err)
	}
	if lost {
		f.note("some lines were written over while they were read, or not readable")
	}
	if start := matching % most; matching > most {
		tail = append(tail[start:len(tail):len(tail)], tail[:start]...)
		f.note("the first %d of %d matching lines are not copied", matching-most, matching)
	}
	f.int("matching", int64(matching))
	f.int("copied", int64(len(tail)))
	f.text("levels", levelCounts(counts))
	if len(tail) > 0 {
		last := &tail[len(tail)-1]
		f.text("lastLine", last.text)
		f.text("lastAge", last.age.Truncate(time.Millisecond).String())
		f.text("worstLine", worstLine.text)
		f.text("worstLevel", levelNames()[worstLine.level])
	}
	err = f.artifact(call, "kmsg.txt", func(w *page) {
		for i := range tail {
			tail[i].write(w)
		}
	})
	return f.output(nil), err
}

func newLogLine(r *hostfs.KernelRecord) logLine {
	return logLine{
		seq: r.Seq, at: r.Time, age: r.Age(), level: r.Level & 7, user: r.Facility != 0,
		text: display.Safe(string(r.Text), maxLogLine),
	}
}

// levelNumber is 7 for a name that is none: all lines.
func levelNumber(name string) int {
	for i, n := range levelNames() {
		if n == name {
			return i
		}
	}
	return 7
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

// write adds the line to kmsg.txt, with the time as dmesg has it.
func (l *logLine) write(w *page) {
	user := ""
	if l.user {
		user = " (written by a process)"
	}
	us := l.at.Microseconds()
	w.printf("[%5d.%06d] %s%s: %s\n", us/1e6, us%1e6, levelNames()[l.level], user, l.text)
}
