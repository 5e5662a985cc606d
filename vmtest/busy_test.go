package vmtest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// load is one kind of work that a healthy machine does repeatedly.
type load struct {
	what  string        // what is counted
	pause time.Duration // minimum pause after each step
	step  func() (n int, err error)
	// sleeps: a step takes long but uses no CPU.
	sleeps bool
	// proof, if set, is called at the end and returns how much of the work the kernel has counted.
	proof func() (n int, err error)

	done int
}

const (
	// A load pauses restFor times as long as its step took, at most restAtMost: loads that wait for
	// an emulated CPU must not overload it, and must leave some of it to the agent.
	restFor    = 4
	restAtMost = 3 * time.Second
)

// busy runs all kinds of work at once.
type busy struct{ all []*load }

func (b *busy) add(loads ...*load) { b.all = append(b.all, loads...) }

// run runs all loads for a time. It fails the test if one can't do its work, or did none.
func (b *busy) run(t *testing.T, d time.Duration) {
	t.Helper()
	end := time.Now().Add(d)
	var g sync.WaitGroup
	for _, l := range b.all {
		g.Go(func() {
			for time.Now().Before(end) {
				began := time.Now()
				n, err := l.step()
				if err != nil {
					t.Errorf("%s, after %d: %v", l.what, l.done, err)
					return
				}
				l.done += n
				pause := l.pause
				if !l.sleeps {
					pause = max(pause, min(restFor*time.Since(began), restAtMost))
				}
				time.Sleep(pause)
			}
		})
	}
	before := cpuTimes(t)
	g.Wait()
	after := cpuTimes(t)
	t.Logf("CPUs idle for %d %%, %d forks by the kernel's count",
		100*(after.idle-before.idle)/max(after.all-before.all, 1), after.forks-before.forks)
	for _, l := range b.all {
		proven := -1
		if l.proof != nil {
			var err error
			if proven, err = l.proof(); err != nil {
				t.Errorf("%s: %v", l.what, err)
			}
		}
		if l.done == 0 || proven == 0 {
			t.Errorf("%s: none", l.what)
		}
		if l.proof == nil {
			t.Logf("%6d %s", l.done, l.what)
		} else {
			t.Logf("%6d %s (the kernel counts %d)", l.done, l.what, proven)
		}
	}
}

// cpuTime holds the counters of /proc/stat since boot, times in ticks.
type cpuTime struct{ all, idle, forks int }

func cpuTimes(t *testing.T) (c cpuTime) {
	t.Helper()
	for i, field := range strings.Fields(strings.SplitN(attribute("/proc/stat"), "\n", 2)[0])[1:] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		c.all += n
		if i == 3 || i == 4 { // idle, and idle while waiting for I/O
			c.idle += n
		}
	}
	var err error
	if c.forks, err = numberIn("/proc/stat", "processes"); err != nil {
		t.Fatal(err)
	}
	return c
}

// numberIn returns the number after a word at the start of a line of a file.
func numberIn(path, word string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == word {
			return strconv.Atoi(fields[1])
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, word)
}

// since returns a function that returns the increase of count from now on.
func since(t *testing.T, count func() (int, error)) func() (int, error) {
	t.Helper()
	before, err := count()
	if err != nil {
		t.Fatal(err)
	}
	return func() (int, error) {
		after, err := count()
		return after - before, err
	}
}
