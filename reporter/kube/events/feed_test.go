package events_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/vmtest/testenv"
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
	seq, _, err := j.Add(e)
	if err = errors.Join(err, j.Flush()); err != nil {
		t.Fatal(err)
	}
	e.Seq = seq
	return e
}

// enter passes an appended entry to the feed.
func enter(f *events.Feed, e journal.Entry) {
	f.Add(e)
	f.Flush(e.Seq)
}

type collected struct{ counts []uint64 }

func (c *collected) fold(it events.Item) {
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
		add(t, j, i) // before the feed was created
	}
	f := events.NewFeed(dir, 2, nil)
	enter(f, add(t, j, 6))
	var c collected
	seq, lost, err := f.Drain(c.fold)
	if err != nil || lost != 0 || seq != 6 || !slices.Equal(c.counts, []uint64{3, 4, 5, 6}) {
		t.Fatalf("seq %d, lost %d, error %v, entries %v", seq, lost, err, c.counts)
	}
	add(t, j, 7) // not passed to the feed: detected by the gap
	enter(f, add(t, j, 8))
	if seq, lost, err = f.Drain(c.fold); err != nil || lost != 0 || seq != 8 || !slices.Equal(c.counts, []uint64{3, 4, 5, 6, 7, 8}) {
		t.Fatalf("seq %d, lost %d, error %v, entries %v", seq, lost, err, c.counts)
	}
}

func TestFeedReadsFromTheJournalWhatItHasNoRoomFor(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.Options{})
	f := events.NewFeed(dir, 0, nil)
	var c collected
	if _, _, err := f.Drain(c.fold); err != nil {
		t.Fatal(err)
	}
	n := events.MaxQueue*2 + 17
	for i := 1; i <= n; i++ {
		enter(f, add(t, j, i))
	}
	seq, lost, err := f.Drain(c.fold)
	if err != nil || lost != 0 || seq != uint64(n) || !slices.Equal(c.counts, upTo(n)) {
		t.Fatalf("seq %d, lost %d, error %v, %d entries", seq, lost, err, len(c.counts))
	}
}

func TestFeedHandsOnWhatTheJournalCouldNotTake(t *testing.T) {
	f := events.NewFeed(t.TempDir(), 0, nil)
	var c collected
	if _, _, err := f.Drain(c.fold); err != nil {
		t.Fatal(err)
	}
	for i := range events.MaxQueue + 3 {
		enter(f, journal.Entry{Transitions: []problem.Transition{{Problem: &problem.Problem{Count: uint64(i + 1)}}}})
	}
	seq, lost, err := f.Drain(c.fold)
	if err != nil || seq != 0 || lost != 3 || !slices.Equal(c.counts, upTo(events.MaxQueue)) {
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
	f := events.NewFeed(dir, 10, nil)
	var c collected
	seq, lost, err := f.Drain(c.fold)
	if err != nil || seq != n || lost == 0 || lost+uint64(len(c.counts)) != n-10 {
		t.Fatalf("seq %d, lost %d, error %v, %d entries", seq, lost, err, len(c.counts))
	}
}

// Two agents with one state folder have used a number twice: nothing is lost by that.
func TestFeedReadsANumberTwice(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.Options{})
	for i := 1; i <= 3; i++ {
		add(t, j, i)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	if err := os.WriteFile(files[0], append(text, lines[len(lines)-2]...), 0o600); err != nil {
		t.Fatal(err)
	}
	var c collected
	seq, lost, err := events.NewFeed(dir, 0, nil).Drain(c.fold)
	if err != nil || seq != 3 || lost != 0 || len(c.counts) != 4 {
		t.Errorf("seq %d, lost %d, error %v, counts %v", seq, lost, err, c.counts)
	}
}

func TestFeedKeepsUpWithAWriter(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.Options{})
	f := events.NewFeed(dir, 0, nil)
	const n = 5000
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 1; i <= n; i++ {
			enter(f, add(t, j, i))
		}
	})
	var c collected
	deadline := time.Now().Add(testenv.Within(time.Minute))
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

func TestFeedReportsKernelRecords(t *testing.T) {
	f := events.NewFeed(t.TempDir(), 0, nil)
	if _, _, err := f.Drain(nil); err != nil {
		t.Fatal(err)
	}
	tr := []problem.Transition{{Problem: &problem.Problem{}}}
	enter(f, journal.Entry{Seq: 1, Transitions: tr, Event: &event.Event{CPU: 3}})
	enter(f, journal.Entry{Seq: 2, Transitions: tr, Event: &event.Event{CPU: event.NoCPU}})
	enter(f, journal.Entry{Seq: 3, Transitions: tr})
	var kernel []bool
	if _, _, err := f.Drain(func(it events.Item) { kernel = append(kernel, it.Kernel) }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(kernel, []bool{true, false, false}) {
		t.Fatal(kernel)
	}
}

func BenchmarkEntry(b *testing.B) {
	f := events.NewFeed(b.TempDir(), 0, nil)
	if _, _, err := f.Drain(nil); err != nil {
		b.Fatal(err)
	}
	e := journal.Entry{Transitions: []problem.Transition{{Problem: &problem.Problem{Count: rand.Uint64()}}}}
	fold := func(events.Item) {}
	b.ReportAllocs()
	for b.Loop() {
		e.Seq++
		enter(f, e)
		if e.Seq%512 == 0 {
			if _, _, err := f.Drain(fold); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// Entries that the journal can't write yet because the disk hangs, and that found no room here,
// are delivered when the disk is back. They do not count as lost.
func TestFeedWaitsForWhatTheDiskHasNot(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.Options{Patience: time.Millisecond})
	f := events.NewFeed(dir, 0, j.Written)
	var c collected
	if _, _, err := f.Drain(c.fold); err != nil {
		t.Fatal(err)
	}
	hang := make(chan struct{})
	free := sync.OnceFunc(func() { close(hang) })
	defer free()
	go func() { _ = j.Do(t.Context(), func() error { <-hang; return nil }) }()
	testenv.Until(t, "the disk hangs", 10*time.Second, func() bool { return j.Stats().Late > 0 })
	const n = events.MaxQueue + 17
	for i := 1; i <= n; i++ {
		enter(f, add(t, j, i))
	}
	for range 2 {
		seq, lost, err := f.Drain(c.fold)
		if err != nil || lost != 0 || seq != events.MaxQueue || !slices.Equal(c.counts, upTo(events.MaxQueue)) {
			t.Fatalf("seq %d, lost %d, error %v, %d entries", seq, lost, err, len(c.counts))
		}
	}
	free()
	testenv.Until(t, "all is written", 10*time.Second, func() bool { return j.Written() == n })
	seq, lost, err := f.Drain(c.fold)
	if err != nil || lost != 0 || seq != n || !slices.Equal(c.counts, upTo(n)) {
		t.Fatalf("seq %d, lost %d, error %v, %d entries", seq, lost, err, len(c.counts))
	}
	enter(f, add(t, j, n+1)) // from memory again
	if seq, _, err := f.Drain(c.fold); err != nil || seq != n+1 || !slices.Equal(c.counts, upTo(n+1)) {
		t.Fatalf("seq %d, error %v, %d entries", seq, err, len(c.counts))
	}
}

// Entries that the journal may still lose are not delivered, and lost ones have no number.
func TestEntriesAreHandedOnWhenTheyAreFlushed(t *testing.T) {
	tr := []problem.Transition{{Problem: &problem.Problem{Rule: "r", Count: 1}}}
	f := events.NewFeed(t.TempDir(), 0, func() uint64 { return 1 })
	var seqs []uint64
	drain := func(want ...uint64) {
		t.Helper()
		seqs = nil
		seq, lost, err := f.Drain(func(it events.Item) { seqs = append(seqs, it.Seq) })
		if err != nil || lost != 0 || !slices.Equal(seqs, want) {
			t.Errorf("%v to %d, %d lost, %v; want %v", seqs, seq, lost, err, want)
		}
	}
	drain() // the journal's files are empty
	for seq := range uint64(3) {
		f.Add(journal.Entry{Seq: seq + 1, Transitions: tr})
		drain()
	}
	select {
	case <-f.Wake():
		t.Error("woken before a flush")
	default:
	}
	f.Flush(1) // the other two are lost
	<-f.Wake()
	f.Add(journal.Entry{Seq: 2, Transitions: tr}) // the lost numbers are used again
	drain(1, 0, 0)
	f.Flush(2)
	drain(2)
}
