package journald

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// ErrNoFiles is reported if there are no readable journal files, because journalctl doesn't report
// that. A reader that follows a folder of its own waits for the first file without reporting it.
var ErrNoFiles = errors.New("no journal files")

const (
	// Folder is where journald keeps its journal on disk, if it does.
	Folder = "/var/log/journal"
	// memoryFolder is where it keeps the journal otherwise.
	memoryFolder = "/run/log/journal"
)

// errNewFolder ends a journalctl that runs while one of journald's folders is created: journalctl
// watches only those that existed when it was started (systemd/systemd#8262).
var errNewFolder = errors.New("a folder of the journal was created")

// errHangs is reported while journalctl waits for the journal's disk, which does not answer.
var errHangs = errors.New("journalctl waits for its disk")

// look returns ErrNoFiles if journalctl would find no files.
func (r *Reader) look() error {
	for _, folder := range r.folders {
		if HasFiles(r.fs, folder) {
			return nil
		}
	}
	return fmt.Errorf("%w in %s", ErrNoFiles, strings.Join(r.folders, ", "))
}

// foldersNow returns the states of the folders if they pass a check and their disk answers.
func (r *Reader) foldersNow(check func() error) ([]os.FileInfo, error) {
	return bounded.Do(&r.looks, hangsAfter, func() ([]os.FileInfo, error) {
		if err := check(); err != nil {
			return nil, err
		}
		return r.existing(), nil
	})
}

// existing returns the states of the folders; nil for one that does not exist.
func (r *Reader) existing() []os.FileInfo {
	states := make([]os.FileInfo, len(r.folders))
	for i, folder := range r.folders {
		if f, err := r.fs.Open(folder); err == nil {
			states[i], _ = f.Stat() //nolint:errcheck // nil as if it did not exist
			_ = f.Close()
		}
	}
	return states
}

// created reports whether a folder now exists that did not, or was another one, before.
func created(before, now []os.FileInfo) bool {
	for i := range before {
		if now[i] != nil && (before[i] == nil || !os.SameFile(before[i], now[i])) {
			return true
		}
	}
	return false
}

// HasFiles reports whether there is a journal file in a folder of the host, or in one of its
// subfolders (one per machine, named by its id).
func HasFiles(host hostfs.FS, folder string) bool {
	entries := list(host, folder)
	if slices.ContainsFunc(entries, isJournal) {
		return true
	}
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return slices.ContainsFunc(list(host, filepath.Join(folder, e.Name())), isJournal)
	})
}

// list returns the entries of a folder; none if it can't be read, or is no folder.
func list(host hostfs.FS, folder string) []os.DirEntry {
	f, err := host.Open(folder)
	if err != nil {
		return nil
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil
	}
	return entries
}

// isJournal recognizes journal files by name; one that was not closed properly ends with a tilde.
func isJournal(e os.DirEntry) bool {
	return !e.IsDir() && (strings.HasSuffix(e.Name(), ".journal") || strings.HasSuffix(e.Name(), ".journal~"))
}
