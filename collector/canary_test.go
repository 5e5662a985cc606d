package collector

import (
	"testing"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
)

// An agent that was killed because its canaries did not arrive leaves one in the ring. The next
// agent must not take it for one of its own.
func TestCanaryOfAnEarlierRun(t *testing.T) {
	run := func() *stem {
		return &stem{name: bpf.StemOOMKill, loaded: new(bpf.Loaded), decoder: decoder{prove: func(uint64) bool { return true }}}
	}
	now := time.Now()
	earlier, st := run(), run()
	for range 1000 {
		earlier.exercise(now)
	}
	sources := &Sources{stems: []*stem{st}}
	sources.CanarySeen(&event.CanaryData{Stem: st.name, Nonce: earlier.canary.sent})
	st.exercise(now)
	late := now.Add(canaryPatience + time.Second)
	if err := sources.Check(late); err == nil {
		t.Error("a canary that did not arrive is no error")
	}
	sources.CanarySeen(&event.CanaryData{Stem: st.name, Nonce: st.canary.sent})
	if err := sources.Check(late); err != nil {
		t.Error(err)
	}
}
