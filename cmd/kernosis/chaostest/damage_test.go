package chaostest_test

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tear appends an incomplete line to the journal, as a power failure does.
func (w *world) tear(r *rand.Rand) {
	w.t.Helper()
	if w.harmed[disk] != nil {
		return
	}
	segments := w.stateFiles(isSegment)
	if len(segments) == 0 {
		return
	}
	f, err := os.OpenFile(segments[len(segments)-1], os.O_APPEND|os.O_WRONLY, 0)
	w.must(err)
	text := make([]byte, 1+r.IntN(200))
	for i := range text {
		text[i] = byte(' ' + r.IntN(200)) // no newline: the line is truncated
	}
	_, err = f.Write(append([]byte(`{"seq":`), text...))
	w.must(err)
	w.must(f.Close())
}

// tearSnapshot truncates the engine's snapshot.
func (w *world) tearSnapshot(r *rand.Rand) {
	w.t.Helper()
	path := filepath.Join(w.agent.State, "engine.json")
	info, err := os.Stat(path)
	if os.IsNotExist(err) {
		return // no snapshot was written yet
	}
	w.must(err)
	w.must(os.Truncate(path, r.Int64N(info.Size())))
}

// flip inverts the highest bit of a byte in the middle of a file of the state, as a bad disk does.
func (w *world) flip(r *rand.Rand, of func(path string) bool) {
	w.t.Helper()
	files := w.stateFiles(of)
	if len(files) == 0 || w.harmed[disk] != nil {
		return
	}
	path := files[r.IntN(len(files))]
	content, err := os.ReadFile(path)
	w.must(err)
	if len(content) < 3 {
		return
	}
	at := len(content)/3 + r.IntN(len(content)/3)
	content[at] ^= 0x80
	w.must(os.WriteFile(path, content, 0o600))
	line := content[:at]
	w.note("  byte %d of %s, after %q", at, filepath.Base(path), line[max(0, len(line)-40):])
	w.flipped = append(w.flipped, path)
}

func isSegment(path string) bool    { return filepath.Base(filepath.Dir(path)) == "journal" }
func isSnapshot(path string) bool   { return filepath.Base(path) == "engine.json" }
func isCheckpoint(path string) bool { return strings.HasSuffix(path, ".checkpoint") }

// journalFlips returns how often a byte of the journal was inverted: each damages one entry, or two.
func (w *world) journalFlips() (n int) {
	for _, path := range w.flipped {
		if isSegment(path) {
			n++
		}
	}
	return n
}

// stateFiles returns the files of the agent's state, in order.
func (w *world) stateFiles(of func(path string) bool) (files []string) {
	w.t.Helper()
	w.must(filepath.WalkDir(w.agent.State, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && of(path) {
			files = append(files, path)
		}
		return err
	}))
	slices.Sort(files)
	return files
}

// restate writes the line of the app's state again: the agent may have lost it with a damaged entry.
func (w *world) restate() {
	w.t.Helper()
	if len(w.flipped) == 0 {
		return
	}
	if w.broken {
		w.fall()
	} else {
		w.standUp()
	}
}
