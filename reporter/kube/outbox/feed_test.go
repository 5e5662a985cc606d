package outbox_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/kube/outbox"
	"github.com/kernosis/kernosis/vmtest/await"
)

func open(t *testing.T, dir string, o journal.Options) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

// add appends an entry; its problem's count is i.
func add(t *testing.T, j *journal.Journal, i int) journal.Entry {
	t.Helper()
	e := journal.Entry{Now: time.Unix(int64(i), 0), Transitions: []problem.Transition{{Problem: &problem.Problem{Rule: "r", Count: uint64(i)}}}}
	seq, err := j.Append(e)
	if err != nil {
		t.Fatal(err)
	}
	e.Seq = seq
	return e
}

type collected struct{ counts []uint64 }

func (c *collected) fold(it outbox.Item) {
	for _, tr := range it.Transitions {
		c.counts = append(c.counts, tr.Problem.Count)
	}
}

func upTo(n int) []uint64 {
	var out []uint64
	for i := range n {
		out = append(out, uint64(i+1))
	}
	return out
}

func TestFeedHandsOnEachEntryOnce(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.Options{})
	for i := 1; i <= 5; i++ {
		add(t, j, i) // before the feed was there
	}
	f := outbox.NewFeed(dir, 2, nil)
	f.Entry(add(t, j, 6))
	var c collected
	seq, lost, err := f.Drain(c.fold)
	if err != nil || lost != 0 || seq != 6 || !slices.Equal(c.counts, []uint64{3, 4, 5, 6}) {
		t.Fatalf("seq %d, lost %d, error %v, entries %v", seq, lost, err, c.counts)
	}
	add(t, j, 7) // nobody told of it: seen by the gap
	f.Entry(add(t, j, 8))
	if seq, lost, err = f.Drain(c.fold); err != nil || lost != 0 || seq != 8 || !slices.Equal(c.counts, []uint64{3, 4, 5, 6, 7, 8}) {
		t.Fatalf("seq %d, lost %d, error %v, entries %v", seq, lost, err, c.counts)
	}
}

func TestFeedReadsFromTheJournalWhatItHasNoRoomFor(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.Options{})
	f := outbox.NewFeed(dir, 0, nil)
	var c collected
	if _, _, err := f.Drain(c.fold); err != nil {
		t.Fatal(err)
	}
	n := outbox.MaxQueue*2 + 17
	for i := 1; i <= n; i++ {
		f.Entry(add(t, j, i))
	}
	seq, lost, err := f.Drain(c.fold)
	if err != nil || lost != 0 || seq != uint64(n) || !slices.Equal(c.counts, upTo(n)) {
		t.Fatalf("seq %d, lost %d, error %v, %d entries", seq, lost, err, len(c.counts))
	}
}

func TestFeedHandsOnWhatTheJournalCouldNotTake(t *testing.T) {
	f := outbox.NewFeed(t.TempDir(), 0, nil)
	var c collected
	if _, _, err := f.Drain(c.fold); err != nil {
		t.Fatal(err)
	}
	for i := range outbox.MaxQueue + 3 {
		f.Entry(journal.Entry{Transitions: []problem.Transition{{Problem: &problem.Problem{Count: uint64(i + 1)}}}})
	}
	seq, lost, err := f.Drain(c.fold)
	if err != nil || seq != 0 || lost != 3 || !slices.Equal(c.counts, upTo(outbox.MaxQueue)) {
		t.Fatalf("seq %d, lost %d, error %v, %d entries", seq, lost, err, len(c.counts))
	}
}

func TestFeedCountsWhatTheJournalHasDropped(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.Options{MaxBytes: 16 << 10, SegmentBytes: 2 << 10})
	const n = 500
	for i := 1; i <= n; i++ {
		add(t, j, i)
	}
	f := outbox.NewFeed(dir, 10, nil)
	var c collected
	seq, lost, err := f.Drain(c.fold)
	if err != nil || seq != n || lost == 0 || lost+uint64(len(c.counts)) != n-10 {
		t.Fatalf("seq %d, lost %d, error %v, %d entries", seq, lost, err, len(c.counts))
	}
}

func TestFeedKeepsUpWithAWriter(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.Options{})
	f := outbox.NewFeed(dir, 0, nil)
	const n = 5000
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 1; i <= n; i++ {
			f.Entry(add(t, j, i))
		}
	})
	var c collected
	deadline := time.Now().Add(await.Within(time.Minute))
	for len(c.counts) < n && time.Now().Before(deadline) {
		<-f.Wake()
		if _, lost, err := f.Drain(c.fold); lost != 0 || err != nil {
			t.Fatal(lost, err)
		}
	}
	wg.Wait()
	if !slices.Equal(c.counts, upTo(n)) {
		t.Fatalf("%d entries", len(c.counts))
	}
}

func TestFeedTellsKernelRecords(t *testing.T) {
	f := outbox.NewFeed(t.TempDir(), 0, nil)
	if _, _, err := f.Drain(nil); err != nil {
		t.Fatal(err)
	}
	tr := []problem.Transition{{Problem: &problem.Problem{}}}
	f.Entry(journal.Entry{Seq: 1, Transitions: tr, Event: &event.Event{CPU: 3}})
	f.Entry(journal.Entry{Seq: 2, Transitions: tr, Event: &event.Event{CPU: event.NoCPU}})
	f.Entry(journal.Entry{Seq: 3, Transitions: tr})
	var kernel []bool
	if _, _, err := f.Drain(func(it outbox.Item) { kernel = append(kernel, it.Kernel) }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(kernel, []bool{true, false, false}) {
		t.Fatal(kernel)
	}
}

func BenchmarkEntry(b *testing.B) {
	f := outbox.NewFeed(b.TempDir(), 0, nil)
	if _, _, err := f.Drain(nil); err != nil {
		b.Fatal(err)
	}
	e := journal.Entry{Transitions: []problem.Transition{{Problem: &problem.Problem{Count: rand.Uint64()}}}}
	fold := func(outbox.Item) {}
	b.ReportAllocs()
	for b.Loop() {
		e.Seq++
		f.Entry(e)
		if e.Seq%512 == 0 {
			if _, _, err := f.Drain(fold); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// What the journal can't write yet, because the disk hangs, and what found no room here is
// handed on when the disk is back. It is not taken for lost.
func TestFeedWaitsForWhatTheDiskHasNot(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.Options{Patience: time.Millisecond})
	f := outbox.NewFeed(dir, 0, j.Written)
	var c collected
	if _, _, err := f.Drain(c.fold); err != nil {
		t.Fatal(err)
	}
	hang := make(chan struct{})
	free := sync.OnceFunc(func() { close(hang) })
	defer free()
	go func() { _ = j.Do(t.Context(), func() error { <-hang; return nil }) }()
	await.Until(t, "the disk hangs", 10*time.Second, func() bool { return j.Stats().Late > 0 })
	const n = outbox.MaxQueue + 17
	for i := 1; i <= n; i++ {
		f.Entry(add(t, j, i))
	}
	for range 2 {
		seq, lost, err := f.Drain(c.fold)
		if err != nil || lost != 0 || seq != outbox.MaxQueue || !slices.Equal(c.counts, upTo(outbox.MaxQueue)) {
			t.Fatalf("seq %d, lost %d, error %v, %d entries", seq, lost, err, len(c.counts))
		}
	}
	free()
	await.Until(t, "all is written", 10*time.Second, func() bool { return j.Written() == n })
	seq, lost, err := f.Drain(c.fold)
	if err != nil || lost != 0 || seq != n || !slices.Equal(c.counts, upTo(n)) {
		t.Fatalf("seq %d, lost %d, error %v, %d entries", seq, lost, err, len(c.counts))
	}
	f.Entry(add(t, j, n+1)) // from memory again
	if seq, _, err := f.Drain(c.fold); err != nil || seq != n+1 || !slices.Equal(c.counts, upTo(n+1)) {
		t.Fatalf("seq %d, error %v, %d entries", seq, err, len(c.counts))
	}
}
