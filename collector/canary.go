package collector

import (
	"errors"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
)

// canaryState is the newest canary of a stem, sent and seen again.
type canaryState struct {
	sent   uint64
	sentAt time.Time
	seen   uint64
	err    error // of sending it, or of a link that is gone
}

// canaryEvery is how often the path kernel → ring → engine is exercised;
// canaryPatience is how long one canary may take before the path counts as
// broken. A loaded machine may keep the reader off the CPU for a second.
const (
	canaryEvery    = 10 * time.Second
	canaryPatience = 5 * time.Second
)

// prover is a decoder that can have a real fault happen, whose record it decodes as the
// canary with the nonce: more than the ring is proven then. It reports whether it did.
type prover interface {
	prove(nonce uint64) bool
}

func (s *stem) decodeCanary(raw []byte, ev *event.Event) error {
	c, err := bpf.View[bpf.Canary](raw)
	if err != nil {
		return err
	}
	ev.Kind = event.Canary
	ev.CanaryRun = &event.CanaryData{Stem: s.name, Nonce: c.Nonce}
	return nil
}

// exercise sends the stem's next canary and checks its links. It runs on the
// stem's own goroutine: one that is stuck shows as a canary overdue.
func (s *stem) exercise(now time.Time) {
	s.canaryMu.Lock()
	s.canary.sent++
	s.canary.sentAt = now
	nonce := s.canary.sent
	s.canaryMu.Unlock()
	err := s.loaded.CheckLinks()
	if p, ok := s.decoder.(prover); !ok || !p.prove(nonce) {
		err = errors.Join(err, s.loaded.RunCanary(nonce))
	}
	s.canaryMu.Lock()
	s.canary.err = err
	s.canaryMu.Unlock()
}

// CanarySeen notes that a canary has passed the engine.
func (s *Sources) CanarySeen(c *event.CanaryData) {
	for _, st := range s.stems {
		if st.name == c.Stem {
			st.canaryMu.Lock()
			st.canary.seen = max(st.canary.seen, c.Nonce)
			st.canaryMu.Unlock()
		}
	}
}

// Check says what keeps the agent from seeing faults that this machine lets it
// see: a canary that did not come back, a link that the kernel no longer has. What
// it does not let it see is no failure of the agent, which a restart would
// mend: [Sources.Stems] has that.
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
