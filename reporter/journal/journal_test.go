package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

func oom(n int) Entry {
	at := time.Date(2026, 1, 2, 3, 4, 5, n, time.UTC)
	return Entry{
		Now: at,
		Event: &event.Event{
			Kind: event.OOMKill, Time: at, BootTime: event.Duration(n), CPU: 1,
			Task:    &event.Task{PID: uint32(n), TGID: uint32(n), Comm: "stress"},
			OOMKill: &event.OOMKillData{Scope: "memcg", Limit: 32 << 20},
		},
		Transitions: []problem.Transition{{Problem: &problem.Problem{Rule: "oom-killing", State: problem.Firing, Count: uint64(n)}}},
	}
}

func mustOpen(t *testing.T, dir string, o Options) *Journal {
	t.Helper()
	j, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

// Append is [Journal.Add] and [Journal.Flush] for one entry. It returns 0 if the entry could not be
// written.
func (j *Journal) Append(e Entry) (seq uint64, err error) {
	if seq, _, err = j.Add(e); err != nil {
		return 0, err
	}
	if err := j.Flush(); err != nil && j.Seq() < seq {
		return 0, err
	}
	return seq, nil
}

func mustAppend(t *testing.T, j *Journal, e Entry) uint64 {
	t.Helper()
	seq, err := j.Append(e)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func readAll(t *testing.T, dir string, after uint64) []Entry {
	t.Helper()
	var got []Entry
	damaged, err := Read(dir, after, func(e Entry) error { got = append(got, e); return nil })
	if err != nil || damaged != 0 {
		t.Fatalf("read: %v, %d damaged lines", err, damaged)
	}
	return got
}

func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	j := mustOpen(t, dir, Options{})
	var want []Entry
	for n := range 23 {
		e := oom(n)
		e.Seq = mustAppend(t, j, e)
		want = append(want, e)
	}
	if diff := cmp.Diff(want, readAll(t, dir, 0)); diff != "" {
		t.Errorf("entries differ (-want +got):\n%s", diff)
	}
	if got := readAll(t, dir, 20); len(got) != 3 || got[0].Seq != 21 {
		t.Errorf("after 20 got %d entries", len(got))
	}
}

// A follower gets each entry once, across segments and beside a writer.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	j := mustOpen(t, dir, Options{MaxBytes: 64 << 10, SegmentBytes: 4 << 10})
	follower := Follow(dir)
	var got []uint64
	read := func() {
		t.Helper()
		if damaged, err := follower.Read(func(e Entry) error { got = append(got, e.Seq); return nil }); err != nil || damaged != 0 {
			t.Fatalf("read: %v, %d damaged lines", err, damaged)
		}
	}
	read()
	var want []uint64
	for n := range 40 {
		want = append(want, mustAppend(t, j, oom(n)))
		if n%7 == 0 {
			read()
		}
	}
	read()
	read()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries differ (-want +got):\n%s", diff)
	}
	if segments, err := listSegments(dir); err != nil || len(segments) < 3 {
		t.Errorf("%d segments, %v", len(segments), err)
	}
}

// Tail returns the last complete lines of a journal.
func TestTail(t *testing.T) {
	dir := t.TempDir()
	j := mustOpen(t, dir, Options{MaxBytes: 64 << 10, SegmentBytes: 2 << 10})
	for n := range 20 {
		mustAppend(t, j, oom(n))
	}
	var all []byte
	names, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(names) < 3 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	for _, most := range []int64{0, 10, 700, 3000, 5000, 1 << 20} {
		got, err := Tail(dir, most)
		if err != nil || int64(len(got)) > most || !bytes.HasSuffix(all, got) || len(got) > 0 && got[0] != '{' {
			t.Errorf("%d bytes: %d, %v: %.80s", most, len(got), err, got)
		}
		if longest := int64(600); min(most, int64(len(all)))-int64(len(got)) > longest {
			t.Errorf("%d bytes: only %d", most, len(got))
		}
	}
}

// Add returns the line as the journal writes it.
func TestLine(t *testing.T) {
	dir := t.TempDir()
	j := mustOpen(t, dir, Options{})
	var want bytes.Buffer
	for n := range 3 {
		seq, line, err := j.Add(oom(n))
		if err != nil || seq != uint64(n)+1 {
			t.Fatalf("entry %d got number %d: %v", n, seq, err)
		}
		want.Write(line)
	}
	if err := j.Flush(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(j.path(1))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want.Bytes(), got) {
		t.Errorf("lines are\n%s\nand the file has\n%s", want.Bytes(), got)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, line, err := j.Add(oom(3)); err == nil || line != nil {
		t.Errorf("a closed journal returned %q, %v", line, err)
	}
}

// A killed writer may leave half a line: it is cut off, the other lines stay, and the numbering
// continues.
func TestTornLineIsCut(t *testing.T) {
	dir := t.TempDir()
	j := mustOpen(t, dir, Options{})
	mustAppend(t, j, oom(1))
	mustAppend(t, j, oom(2))
	j.Close()
	f, err := os.OpenFile(filepath.Join(dir, segmentName(1)), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"seq":3,"now":"2026-`); err != nil {
		t.Fatal(err)
	}
	f.Close()

	j = mustOpen(t, dir, Options{})
	if got := j.Stats().TornBytes; got != 21 {
		t.Errorf("torn bytes = %d, want 21", got)
	}
	if seq := mustAppend(t, j, oom(3)); seq != 3 {
		t.Errorf("next sequence number = %d, want 3", seq)
	}
	if got := readAll(t, dir, 0); len(got) != 3 {
		t.Errorf("read %d entries, want 3", len(got))
	}
}

// The bound holds also for lines that are written together and longer than a segment.
func TestBoundHoldsAndDropsAreCounted(t *testing.T) {
	for name, together := range map[string]int{"one by one": 1, "together": 40} {
		t.Run(name, func(t *testing.T) { testBound(t, together) })
	}
}

func testBound(t *testing.T, together int) {
	t.Helper()
	dir := t.TempDir()
	const bound = 64 << 10
	j := mustOpen(t, dir, Options{MaxBytes: bound})
	for n := range 1000 {
		if _, _, err := j.Add(oom(n)); err != nil {
			t.Fatal(err)
		}
		if (n+1)%together != 0 {
			continue
		}
		if err := j.Flush(); err != nil {
			t.Fatal(err)
		}
		if s := j.Stats(); s.Bytes > bound {
			t.Fatalf("%d bytes after %d entries, bound is %d", s.Bytes, n+1, bound)
		}
	}
	got := readAll(t, dir, 0)
	if j.Stats().DroppedSegments == 0 || len(got) == 1000 {
		t.Fatal("nothing was dropped")
	}
	for i := 1; i < len(got); i++ {
		if got[i].Seq != got[i-1].Seq+1 {
			t.Fatalf("gap between %d and %d", got[i-1].Seq, got[i].Seq)
		}
	}
	if last := got[len(got)-1].Seq; last != 1000 {
		t.Errorf("newest entry is %d, want 1000", last)
	}
}

func TestDamagedLineIsSkippedAndCounted(t *testing.T) {
	dir := t.TempDir()
	j := mustOpen(t, dir, Options{})
	mustAppend(t, j, oom(1))
	if _, err := j.file.WriteString("not json\n"); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, j, oom(2))
	n := 0
	damaged, err := Read(dir, 0, func(Entry) error { n++; return nil })
	if err != nil || damaged != 1 || n != 2 {
		t.Errorf("got %d entries, %d damaged, %v; want 2, 1, nil", n, damaged, err)
	}
}

// Added entries wait for a Flush, or until there are many. After a Flush, an Append or a Do, all
// earlier entries are in the files.
func TestEntriesAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		j := mustOpen(t, dir, Options{})
		add := func(n int) {
			t.Helper()
			if seq, _, err := j.Add(oom(n)); err != nil || seq != uint64(n) {
				t.Fatalf("entry %d got number %d: %v", n, seq, err)
			}
		}
		want := func(when string, written int) {
			t.Helper()
			synctest.Wait()
			if got := readAll(t, dir, 0); len(got) != written || j.Written() != uint64(written) {
				t.Errorf("%s: the files have %d entries, written up to %d; want %d", when, len(got), j.Written(), written)
			}
		}
		add(1)
		add(2)
		want("added", 0)
		if s := j.Stats(); s.Waiting != 2 || s.Late != 0 {
			t.Errorf("%+v", s)
		}
		if err := j.Flush(); err != nil {
			t.Fatal(err)
		}
		want("flushed", 2)
		add(3)
		mustAppend(t, j, oom(4))
		want("appended", 4)
		add(5)
		if err := j.Do(t.Context(), func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		want("before what is done", 5)
		n := 6
		for size := 0; size < batchBytes; n++ {
			add(n)
			size += len(j.buf.Bytes())
		}
		want("many", n-1)
		add(n)
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		want("closed", n)
	})
}

// If a write of several lines fails, each of them is counted as lost, and what a full disk has
// accepted of them is cut off. Their numbers are reused.
func TestLinesThatFailTogether(t *testing.T) {
	dir := t.TempDir()
	j := mustOpen(t, dir, Options{})
	mustAppend(t, j, oom(1))
	whole := j.file
	broken, err := os.Open(os.DevNull) // opened read-only, so that writes fail
	if err != nil {
		t.Fatal(err)
	}
	defer broken.Close()
	swap := func(f *os.File) {
		t.Helper()
		writerDoes(t, j, func() { j.file = f })
	}
	swap(broken)
	for n := 2; n <= 4; n++ {
		if seq, _, err := j.Add(oom(n)); err != nil || seq != uint64(n) {
			t.Fatalf("number %d: %v", seq, err)
		}
	}
	if err := j.Flush(); err == nil {
		t.Error("lost entries are not reported")
	}
	if s := j.Stats(); s.Appended != 1 || s.Failed != 3 || s.Waiting != 0 || j.Seq() != 1 || j.Written() != 1 {
		t.Errorf("%+v, newest %d, written up to %d", s, j.Seq(), j.Written())
	}
	if seq, err := j.Append(oom(2)); err == nil || seq != 0 {
		t.Errorf("number %d, error %v", seq, err)
	}
	swap(whole)
	if seq := mustAppend(t, j, oom(2)); seq != 2 {
		t.Errorf("number %d", seq)
	}
	if err := j.Flush(); err != nil {
		t.Errorf("an error is reported twice: %v", err)
	}
	if got := readAll(t, dir, 0); len(got) != 2 || got[1].Seq != 2 {
		t.Errorf("the files have %+v", got)
	}
}

func writerDoes(t *testing.T, j *Journal, f func()) {
	t.Helper()
	if err := j.Do(t.Context(), func() error { f(); return nil }); err != nil {
		t.Fatal(err)
	}
}

// If a full segment can't be synced or closed, the next one is started anyway, and no line is lost.
// Flush reports the error.
func TestSegmentThatCannotBeSynced(t *testing.T) {
	for name, broken := range map[string]func(*testing.T) *os.File{
		"sync fails": func(t *testing.T) *os.File {
			t.Helper()
			f, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			return f
		},
		"closed": func(t *testing.T) *os.File {
			t.Helper()
			f, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			return f
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := mustOpen(t, dir, Options{})
			mustAppend(t, j, oom(1))
			writerDoes(t, j, func() {
				if err := j.file.Close(); err != nil {
					t.Error(err)
				}
				j.file, j.size = broken(t), j.opts.SegmentBytes
			})
			if err := j.Sync(t.Context()); err == nil {
				t.Error("a failed sync reports no error")
			}
			if _, _, err := j.Add(oom(2)); err != nil {
				t.Fatal(err)
			}
			if err := j.Flush(); err == nil {
				t.Error("the failure is not reported")
			}
			mustAppend(t, j, oom(3))
			if err := j.Sync(t.Context()); err != nil {
				t.Error(err)
			}
			if got := readAll(t, dir, 0); len(got) != 3 || got[2].Seq != 3 || j.Stats().Failed != 0 {
				t.Errorf("the files have %+v; %+v", got, j.Stats())
			}
		})
	}
}

// full returns a journal's folder with several segments, and their first numbers.
func full(t *testing.T) (dir string, firsts []uint64) {
	t.Helper()
	dir = t.TempDir()
	j := mustOpen(t, dir, Options{MaxBytes: 64 << 10, SegmentBytes: 4 << 10})
	for n := range 25 {
		mustAppend(t, j, oom(n))
	}
	j.Close()
	segments, err := listSegments(dir)
	if err != nil || len(segments) < 3 {
		t.Fatalf("%d segments, %v", len(segments), err)
	}
	for _, s := range segments {
		firsts = append(firsts, s.first)
	}
	return dir, firsts
}

// unread replaces a segment by a folder, which can't be read, as if its disk had failed.
func unread(t *testing.T, dir string, first uint64) {
	t.Helper()
	path := filepath.Join(dir, segmentName(first))
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
}

// A segment that can't be read counts as damaged, and the others are read.
func TestUnreadableSegmentIsSkippedAndCounted(t *testing.T) {
	dir, firsts := full(t)
	unread(t, dir, firsts[0])
	var got []uint64
	follower := Follow(dir)
	read := func() (damaged int) {
		t.Helper()
		damaged, err := follower.Read(func(e Entry) error { got = append(got, e.Seq); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return damaged
	}
	if damaged := read(); damaged != 1 || len(got) != 25-int(firsts[1]-1) || got[0] != firsts[1] {
		t.Errorf("%d damaged, entries %d", damaged, got)
	}
	j := mustOpen(t, dir, Options{})
	mustAppend(t, j, oom(26))
	if damaged := read(); damaged != 0 || got[len(got)-1] != 26 {
		t.Errorf("%d damaged in the next read, entries %d", damaged, got)
	}
}

// If the newest segment can't be read, the next one is started. No number is used twice.
func TestNewestSegmentThatCannotBeRead(t *testing.T) {
	dir, firsts := full(t)
	last := firsts[len(firsts)-1]
	unread(t, dir, last)
	for range 2 {
		j := mustOpen(t, dir, Options{})
		if seq := mustAppend(t, j, oom(1)); seq <= 25 {
			t.Errorf("number %d is used again", seq)
		}
		n := 0
		damaged, err := j.Read(0, func(Entry) error { n++; return nil })
		if err != nil || damaged != 1 || n < int(last) {
			t.Errorf("%d entries, %d damaged, %v", n, damaged, err)
		}
		if got := j.Stats().Damaged; got != 1 {
			t.Errorf("%d damaged are counted", got)
		}
		j.Close()
	}
}

// A reader's own error is not about the segment.
func TestReadStops(t *testing.T) {
	dir, _ := full(t)
	stop := errors.New("stop")
	n := 0
	if damaged, err := Read(dir, 0, func(Entry) error { n++; return stop }); !errors.Is(err, stop) || damaged != 0 || n != 1 {
		t.Errorf("%d entries, %d damaged, %v", n, damaged, err)
	}
}

// The size stays within the bound although old segments are missing or can't be removed, and no
// entry is lost because of that.
func TestOldSegmentThatCannotBeRemoved(t *testing.T) {
	const bound = 64 << 10
	for name, harm := range map[string]struct {
		do    func(path string) error
		fails bool
	}{
		"missing": {os.Remove, false},
		"a folder that is not empty": {func(path string) error {
			return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "full"), 0o700))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := mustOpen(t, dir, Options{MaxBytes: bound})
			n := 0
			for ; j.Stats().DroppedSegments == 0; n++ {
				mustAppend(t, j, oom(n))
			}
			segments, err := listSegments(dir)
			harmed := segments[0].first
			if err == nil {
				err = harm.do(j.path(harmed))
			}
			if err != nil {
				t.Fatal(err)
			}
			reported := 0
			for range 1000 {
				if _, _, err := j.Add(oom(n)); err != nil {
					t.Fatal(err)
				}
				if err := j.Flush(); err != nil {
					reported++
				}
				n++
			}
			if s := j.Stats(); s.Failed != 0 || s.Appended != uint64(n) || reported > 0 != harm.fails {
				t.Errorf("%d errors, %+v, want %d appended", reported, s, n)
			}
			if segments, err = listSegments(dir); err != nil {
				t.Fatal(err)
			}
			size := int64(0)
			for _, s := range segments {
				if s.first != harmed {
					size += s.size
				}
			}
			if size > bound+2<<10 || size < bound/2 {
				t.Errorf("%d bytes, bound is %d", size, bound)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"seq\":1}\n{\"seq\":2"))
	f.Add([]byte("\n\n\x00\xff{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, segmentName(1)), data, 0o600); err != nil {
			t.Fatal(err)
		}
		j := mustOpen(t, dir, Options{})
		seq := mustAppend(t, j, oom(1))
		found := false
		if _, err := Read(dir, 0, func(e Entry) error { found = found || e.Seq == seq; return nil }); err != nil {
			t.Fatal(err)
		}
		if !found {
			t.Errorf("entry %d appended after damaged content is not read back", seq)
		}
	})
}

// Entries that are added in batches, as from a ring or a log: the cost per entry.
func BenchmarkAdd(b *testing.B) {
	j, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	e := oom(1)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if _, _, err := j.Add(e); err != nil {
			b.Fatal(err)
		}
		if n%64 == 63 {
			if err := j.Flush(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	j, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	e := oom(1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := j.Append(e); err != nil {
			b.Fatal(err)
		}
	}
}
