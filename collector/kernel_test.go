package collector

import (
	"testing"
	"time"
)

// reads simulates how a stem reads its ring while faults follow each other evenly, and returns how long
// after its fault each one is read.
func reads(every time.Duration, faults int) (delays []time.Duration) {
	r := &ringReader{stem: &stem{decoder: decoder{unhurried: true}}, gathering: stormGather}
	now := time.Now()
	first, read := now, 0
	for read < faults {
		at := first.Add(time.Duration(read) * every)
		if at.After(now) {
			now = at // the reader sleeps until the next fault
		}
		n := 0
		for ; read < faults; read++ {
			at := first.Add(time.Duration(read) * every)
			if at.After(now) {
				break
			}
			n++
			delays = append(delays, now.Sub(at))
		}
		now = now.Add(r.gather(now, n))
	}
	return delays
}

// Only a storm is read more rarely. Faults that follow each other more slowly are each read at once,
// also behind a storm.
func TestGather(t *testing.T) {
	for _, c := range []struct {
		every time.Duration
		most  time.Duration // delay
	}{
		{2 * stormWithin, 0},
		{stormWithin * 3 / 2, 0},
		{stormWithin / 2, stormSeldom},
		{stormWithin / 20, stormSeldom},
	} {
		longest := time.Duration(0)
		for _, d := range reads(c.every, 500) {
			longest = max(longest, d)
		}
		if longest > c.most || c.most > 0 && longest < c.most/2 {
			t.Errorf("a fault each %s: read up to %s late, want at most %s", c.every, longest, c.most)
		}
	}
	r := &ringReader{stem: &stem{decoder: decoder{unhurried: true}}, gathering: stormGather}
	now := time.Now()
	for range 10 {
		now = now.Add(r.gather(now, 10))
	}
	for i := range 10 {
		// As after a storm whose rest arrived during the last pause.
		wait := r.gather(now, 1)
		if i > 0 && wait > 0 {
			t.Errorf("fault %d behind a storm: the next is read %s late", i, wait)
		}
		now = now.Add(max(wait, stormSeldom*95/100))
	}
}
