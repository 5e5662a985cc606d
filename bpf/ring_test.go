package bpf

import (
	"slices"
	"testing"
)

// The records' length does not divide the ring's, so some records wrap around.
func TestRingAround(t *testing.T) {
	l := openStem(t, oomkill(), testKernel(t), nil)
	const rounds, records = 5, 20_000 // it has room for 21,845
	nonce, split := uint64(0), 0
	for range rounds {
		first := nonce
		for range records {
			if err := l.RunCanary(nonce); err != nil {
				t.Fatal(err)
			}
			nonce++
		}
		want := first
		if _, err := l.Drain(func(raw []byte) {
			c, err := View[Canary](raw)
			if err != nil || c.H.Kind != KindCanary || c.Nonce != want {
				t.Fatalf("record %d is %+v (%v)", want, c, err)
			}
			if len(l.ring.wrapped) > 0 && &raw[0] == &l.ring.wrapped[0] {
				split++
			}
			want++
		}); err != nil {
			t.Fatal(err)
		}
		if want != nonce {
			t.Fatalf("read up to %d of %d", want, nonce)
		}
	}
	// 100,000 records of 48 bytes wrap around four times, the third time between two records.
	if split != 3 {
		t.Errorf("%d records ran over the end of the ring", split)
	}
}

// Records are committed together, after what was derived from them is settled.
func TestRecordsAreGivenBackWhenSettled(t *testing.T) {
	l := openStem(t, oomkill(), testKernel(t), nil)
	for nonce := range uint64(2*settleEvery + 3) {
		if err := l.RunCanary(nonce); err != nil {
			t.Fatal(err)
		}
	}
	handled, settled, back := 0, []int(nil), l.ring.consumed().Load()
	l.Settle = func() { settled = append(settled, handled) }
	if _, err := l.Drain(func([]byte) {
		if now := l.ring.consumed().Load(); now != back && (len(settled) == 0 || settled[len(settled)-1] != handled) {
			t.Errorf("at record %d something was given back, settled at %v", handled, settled)
		} else {
			back = now
		}
		handled++
	}); err != nil {
		t.Fatal(err)
	}
	if want := []int{settleEvery, 2 * settleEvery, 2*settleEvery + 3}; !slices.Equal(settled, want) {
		t.Errorf("settled at %v, want %v", settled, want)
	}
	if l.ring.consumed().Load() != l.ring.produced().Load() {
		t.Error("records are not given back")
	}
	if _, err := l.Drain(func([]byte) {}); err != nil || len(settled) != 3 {
		t.Errorf("%v, settled at %v where nothing came", err, settled)
	}
}
