package logs

import (
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

func TestCloneOutlivesTheCall(t *testing.T) {
	buf := []byte("text subsystem b8:0")
	line := Line{
		Time: time.Unix(1, 0), Seq: 7, Priority: "err", Origin: event.OriginKernel,
		Text: buf[:4], Subsystem: buf[5:14], Device: buf[15:],
	}
	clone := line.Clone()
	clear(buf)
	if string(clone.Text) != "text" || string(clone.Subsystem) != "subsystem" || string(clone.Device) != "b8:0" {
		t.Errorf("the clone changed with the buffer: %+v", clone)
	}
	if clone.Seq != 7 || clone.Priority != "err" || !clone.Time.Equal(line.Time) {
		t.Errorf("the clone differs: %+v", clone)
	}
}

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
