package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// changes returns the sequence numbers of the entries that Changes returns.
func changes(t *testing.T, dir string, after uint64, limit int64, most int) (got []uint64) {
	t.Helper()
	_, err := Changes(dir, after, limit, func(e Entry) bool {
		if len(e.Transitions) == 0 {
			t.Errorf("entry %d has no transition", e.Seq)
		}
		got = append(got, e.Seq)
		return len(got) < most
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Changes returns entries newest first, across segments and chunks, and skips those without
// transitions, a torn line and a damaged line.
func TestChanges(t *testing.T) {
	dir := t.TempDir()
	j := mustOpen(t, dir, Options{MaxBytes: 8 << 20, SegmentBytes: 100 << 10})
	var want []uint64
	for n := range 1000 {
		e := oom(n)
		e.Event.Task.Comm = strings.Repeat("x", n%700) // a line may cross chunks
		if n%3 == 0 {
			e.Transitions = nil
			e.Event.Task.Comm = `"transitions":[{}]`
		}
		seq := mustAppend(t, j, e)
		if n%3 != 0 {
			want = append([]uint64{seq}, want...)
		}
	}
	segments, err := listSegments(dir)
	if err != nil || len(segments) < 3 {
		t.Fatalf("%d segments, %v: the test needs several", len(segments), err)
	}
	newest := filepath.Join(dir, segmentName(segments[len(segments)-1].first))
	f, err := os.OpenFile(newest, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("\x00\"transitions\":\n" + `{"seq":2000,"transitions":[{"problem":{}}]`); err != nil {
		t.Fatal(err)
	}
	const all = 1 << 30
	if got := changes(t, dir, 0, all, all); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %d entries %v,\nwant %d", len(got), got, len(want))
	}
	if got := changes(t, dir, 995, all, all); fmt.Sprint(got) != "[999 998 996]" {
		t.Errorf("after 995: %v", got)
	}
	if got := changes(t, dir, 1000, all, all); len(got) > 0 {
		t.Errorf("after the newest: %v", got)
	}
	if got := changes(t, dir, 0, all, 2); fmt.Sprint(got) != "[999 998]" {
		t.Errorf("two: %v", got)
	}
	few := changes(t, dir, 0, 5000, all)
	if len(few) == 0 || len(few) > 30 || few[0] != 999 {
		t.Errorf("of 5000 bytes: %v", few)
	}
	for _, tt := range []struct {
		after uint64
		limit int64
		most  int
		whole bool
	}{
		{0, all, all, true},
		{995, all, all, true},
		{1000, all, all, true},
		{990, 20_000, all, true},
		{0, 5000, all, false},
		{0, all, 2, false},
	} {
		n := 0
		whole, err := Changes(dir, tt.after, tt.limit, func(Entry) bool { n++; return n < tt.most })
		if err != nil || whole != tt.whole {
			t.Errorf("%+v: whole is %v (%v)", tt, whole, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, segmentName(1))); err != nil {
		t.Fatal(err)
	}
	if whole, err := Changes(dir, 10, all, func(Entry) bool { return true }); whole || err != nil {
		t.Errorf("after the first segment was dropped: whole is %v (%v)", whole, err)
	}
}

func BenchmarkChanges(b *testing.B) {
	dir := b.TempDir()
	j, err := Open(dir, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	for n := range 20_000 {
		e := oom(n)
		e.Event.BootTime = event.Duration(n)
		if _, _, err := j.Add(e); err != nil {
			b.Fatal(err)
		}
	}
	if err := j.Flush(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		n := 0
		if _, err := Changes(dir, 0, 8<<20, func(Entry) bool { n++; return n < 500 }); err != nil || n != 500 {
			b.Fatal(n, err)
		}
	}
}

// A running agent removes old segments while another process reads the folder.
func TestSegmentsAreRemovedMeanwhile(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := uint64(1); ctx.Err() == nil; n++ {
			path := filepath.Join(dir, segmentName(n))
			if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Remove(path)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range testenv.Cases(t, 5000) {
		if _, err := listSegments(dir); err != nil {
			t.Error(err)
			break
		}
	}
	cancel()
	writer.Wait()
}
