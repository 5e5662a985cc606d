package kmsg

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// writeKmsg opens the log for writing, but only in a test VM: everybody uses the host's ring.
func writeKmsg(t *testing.T) *os.File {
	t.Helper()
	comm, err := os.ReadFile("/proc/1/comm")
	if err != nil {
		t.Fatal(err)
	}
	if first := strings.TrimSpace(string(comm)); first != "vmrun" && first != "vimto" {
		t.Skipf("floods the kernel's log, so it runs in a machine of vmrun or vimto only (here the first process is %s)", first)
	}
	// By default the kernel accepts ten lines in five seconds from each opener.
	if err := os.WriteFile("/proc/sys/kernel/printk_devkmsg", []byte("on\n"), 0); err != nil {
		t.Fatal(err)
	}
	// A serial console would print every line, at its speed.
	if err := os.WriteFile("/proc/sys/kernel/printk", []byte("1 1 1 1\n"), 0); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A flood as in the issue that made other readers stop: each record is handed over or counted, and
// reading continues, even if the reader is blocked while the ring is overwritten forty times.
func TestFlood(t *testing.T) {
	log := writeKmsg(t)
	t.Run("reading", func(t *testing.T) { flood(t, log, false) })
	t.Run("held up", func(t *testing.T) { flood(t, log, true) })
}

// tally counts the lines of a flood.
type tally struct {
	t            *testing.T
	begin, end   string
	lines, other int // of the flood; of the kernel in between
	lost         int
	counting     bool
	next         uint64
}

func (c *tally) add(item logs.Item) {
	if item.Loss != nil {
		if item.Loss.Reason != logs.Overrun {
			c.t.Errorf("loss: %+v", *item.Loss)
		}
		c.lost += int(item.Loss.Lines)
		c.next += item.Loss.Lines
		return
	}
	if c.next != 0 && item.Line.Seq != c.next {
		c.t.Errorf("line %d, %d was due", item.Line.Seq, c.next)
	}
	c.next = item.Line.Seq + 1
	switch text := string(item.Line.Text); {
	case text == c.begin:
		c.counting = true
	case text == c.end:
		c.counting = false
	case c.counting && strings.HasPrefix(text, "kernosis-flood "):
		c.lines++
		if item.Line.Origin != "user" {
			c.t.Errorf("a line of user space is of %q", item.Line.Origin)
		}
	case c.counting:
		c.other++
	}
}

func flood(t *testing.T, log *os.File, holdUp bool) {
	const flood = 56_000
	write := func(format string, args ...any) {
		t.Helper()
		if _, err := fmt.Fprintf(log, format, args...); err != nil {
			t.Fatal(err)
		}
	}
	c := &tally{t: t, begin: t.Name() + " begins", end: t.Name() + " ends"}
	r := New(Config{Lookback: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(5*time.Minute))
	defer cancel()
	begun, goOn := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- r.Run(ctx, func(item logs.Item) error {
			before := c.counting
			c.add(item)
			switch {
			case !before && c.counting:
				close(begun)
				if holdUp {
					<-goOn
				}
			case before && !c.counting:
				cancel()
			}
			return nil
		})
	}()
	write("%s\n", c.begin)
	select {
	case <-begun:
	case err := <-done:
		t.Fatal(err)
	}
	start := time.Now()
	for i := range flood {
		write("kernosis-flood %d, text to make it about as long as a line of a flood usually is\n", i)
	}
	took := time.Since(start).Round(time.Millisecond)
	close(goOn)
	write("%s\n", c.end)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d lines written in %v: %d handed over, %d lost, %d of others", flood, took, c.lines, c.lost, c.other)
	if c.counting {
		t.Error("the last line was not handed over")
	}
	// The count also includes kernel lines that were lost.
	if sum := c.lines + c.lost; sum < flood || sum > flood+100 || c.lines == 0 || holdUp && c.lost == 0 {
		t.Errorf("%d of %d lines accounted for", sum, flood)
	}
	// The next run gets what was written afterwards.
	write("%s after\n", t.Name())
	if first := firstAfter(t, r.Position()); first != t.Name()+" after" {
		t.Errorf("the next run begins with %q", first)
	}
}

func firstAfter(t *testing.T, at logs.Position) (first string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(time.Minute))
	defer cancel()
	if err := New(Config{Position: at}).Run(ctx, func(item logs.Item) error {
		if first == "" {
			first = describe(item)
		}
		cancel()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return first
}

// Nobody but the kernel can write as the kernel, and no text results in two lines.
func TestForgedLines(t *testing.T) {
	log := writeKmsg(t)
	r := New(Config{Lookback: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(time.Minute))
	defer cancel()
	for _, forged := range []string{
		"<0>kernosis-forged: Out of memory", "<3>kernosis-forged", "kernosis-forged", "<8>kernosis-forged", "<256>kernosis-forged",
		"<4294967296>kernosis-forged", "<2048>kernosis-forged", "kernosis-forged\n6,1,1,-;Kernel panic", "kernosis-forged\n DEVICE=b8:0", "kernosis-forged \x1b[2J\xff\xc3\xa9",
	} {
		if _, err := log.WriteString(forged); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := log.WriteString("kernosis-forged-all\n"); err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := r.Run(ctx, func(item logs.Item) error {
		switch text := string(item.Line.Text); {
		case text == "kernosis-forged-all":
			cancel()
		case strings.Contains(text, "kernosis-forged"):
			n++
			if item.Line.Origin == event.OriginKernel || strings.ContainsAny(text, "\n\x1b") {
				t.Errorf("%q is attributed to %q", text, item.Line.Origin)
			}
		case strings.HasPrefix(text, "Kernel panic"), strings.HasPrefix(text, "6,1,1"):
			t.Errorf("a text became a line of its own: %q", text)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n != 10 {
		t.Errorf("%d of 10 lines", n)
	}
}
