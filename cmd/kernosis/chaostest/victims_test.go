package chaostest_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// victim is a process that the kernel has killed for lack of memory.
type victim struct {
	pid int
	at  time.Duration // since boot
}

// victimName is the name of the processes that the test has killed.
const victimName = "kn-oom-child"

// killedLine is the line of the kernel's log about a victim. The kernel limits the rate of the others.
var killedLine = regexp.MustCompile(`^\d+,\d+,(\d+),[^;]*;.*: Killed process (\d+) \(` + victimName + `\)`) //nolint:gochecknoglobals // a constant

// victims reads the test's victims from the kernel's log, independently of the agent and of its
// reader.
type victims struct {
	device *os.File
	ended  chan struct{}
	offset time.Duration // from the log's clock to the time since boot

	mu  sync.Mutex
	all []victim
	err error
}

// watchVictims reads the victims from now on, until the end of the test.
func watchVictims(t *testing.T) *victims {
	t.Helper()
	device, err := os.Open("/dev/kmsg")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := device.Seek(0, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	v := &victims{device: device, ended: make(chan struct{}), offset: hostfs.BootTime() - hostfs.Monotonic()}
	go v.read()
	t.Cleanup(func() {
		_ = device.Close()
		<-v.ended
		if v.err != nil {
			t.Errorf("the test's own reader of the kernel's log: %v", v.err)
		}
	})
	return v
}

func (v *victims) read() {
	defer close(v.ended)
	record := make([]byte, 8<<10)
	for {
		n, err := v.device.Read(record)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		v.mu.Lock()
		if err != nil {
			v.err = err
			if !errors.Is(err, unix.EPIPE) { // records were overwritten
				v.mu.Unlock()
				return
			}
		} else if m := killedLine.FindStringSubmatch(string(record[:n])); m != nil {
			micros, _ := strconv.ParseInt(m[1], 10, 64)
			pid, _ := strconv.Atoi(m[2])
			v.all = append(v.all, victim{pid, time.Duration(micros)*time.Microsecond + v.offset})
		}
		v.mu.Unlock()
	}
}

// list returns the victims so far.
func (v *victims) list() []victim {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]victim(nil), v.all...)
}

// known waits until the log has shown as many victims as the kernel has counted.
func (w *world) known() []victim {
	w.t.Helper()
	var all []victim
	w.await("the kernel's log", func() (bool, string) {
		kills, err := w.oom.Kills()
		w.must(err)
		all = w.victims.list()
		want := int(kills) + w.flooded
		return len(all) >= want, fmt.Sprintf("%d victims, of %d", len(all), want)
	})
	return all
}
