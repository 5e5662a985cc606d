package collector

import (
	"errors"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// canaryState holds the newest canary of a stem: when it was sent, and which one arrived.
type canaryState struct {
	sent   uint64
	sentAt time.Time
	seen   uint64
	err    error // of sending it, or of a missing link
}

// canaryEvery is how often the path kernel → ring → engine is tested, canaryPatience how long a
// canary may take: on a loaded machine the reader may wait a second for a CPU.
const (
	canaryEvery    = 10 * time.Second
	canaryPatience = 5 * time.Second
)

func (s *stem) decodeCanary(raw []byte, ev *event.Event) error {
	c, err := bpf.View[bpf.Canary](raw)
	if err != nil {
		return err
	}
	ev.Kind = event.Canary
	ev.CanaryRun = &event.CanaryData{Stem: s.name, Nonce: c.Nonce}
	return nil
}

// exercise sends the stem's next canary and checks its links. It runs on the stem's own goroutine,
// so that a stuck goroutine makes a canary overdue.
func (s *stem) exercise(now time.Time) {
	s.canaryMu.Lock()
	// Above the nonces of earlier runs: the ring may contain the canary of an agent that hung.
	s.canary.sent = max(s.canary.sent+1, uint64(hostfs.BootTime()))
	s.canary.sentAt = now
	nonce := s.canary.sent
	s.canaryMu.Unlock()
	err := s.loaded.CheckLinks()
	if s.decoder.prove == nil || !s.decoder.prove(nonce) {
		err = errors.Join(err, s.loaded.RunCanary(nonce))
	}
	s.canaryMu.Lock()
	s.canary.err = err
	s.canaryMu.Unlock()
}

// CanarySeen records that a canary has passed the engine.
func (s *Sources) CanarySeen(c *event.CanaryData) {
	for _, st := range s.stems {
		if st.name == c.Stem {
			st.canaryMu.Lock()
			st.canary.seen = max(st.canary.seen, c.Nonce)
			st.canaryMu.Unlock()
		}
	}
}

// Check returns an error if the agent misses faults that it could detect on this machine: a canary
// did not arrive, or the kernel lost a link. Faults that the machine doesn't let it detect are not
// an error, because a restart would not help: [Sources.Stems] reports those.
func (s *Sources) Check(now time.Time) error {
	var errs []error
	for _, st := range s.stems {
		if st.err != nil {
			continue
		}
		st.canaryMu.Lock()
		c := st.canary
		st.canaryMu.Unlock()
		switch {
		case c.err != nil:
			errs = append(errs, c.err)
		case c.sent == 0:
			errs = append(errs, fmt.Errorf("%s: no canary was sent yet", st.name))
		case c.seen < c.sent && now.Sub(c.sentAt) > canaryPatience:
			errs = append(errs, fmt.Errorf("%s: the canary of %s ago did not reach the engine", st.name, now.Sub(c.sentAt).Round(time.Second)))
		case now.Sub(c.sentAt) > 3*canaryEvery:
			errs = append(errs, fmt.Errorf("%s: no canary was sent for %s", st.name, now.Sub(c.sentAt).Round(time.Second)))
		}
	}
	return errors.Join(errs...)
}
