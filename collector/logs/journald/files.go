package journald

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNoFiles is reported where there are no journal files that can be read: journalctl
// says nothing of it. Who follows a journal waits for the first one; who reads it
// once has looked at nothing.
var ErrNoFiles = errors.New("no journal files")

const (
	// Folder is where journald keeps its journal on disk, if it does.
	Folder = "/var/log/journal"
	// memoryFolder is where it keeps it otherwise.
	memoryFolder = "/run/log/journal"
)

// look returns ErrNoFiles where journalctl would find none.
func (r *Reader) look() error {
	folders := []string{Folder, memoryFolder}
	if r.cfg.Directory != "" {
		folders = []string{r.cfg.Directory}
	}
	for _, folder := range folders {
		if HasFiles(filepath.Join(r.cfg.Root, folder)) {
			return nil
		}
	}
	return fmt.Errorf("%w in %s", ErrNoFiles, strings.Join(folders, ", "))
}

// HasFiles reports whether a folder, or one in it (of a machine, by its id), has a
// journal file.
func HasFiles(folder string) bool {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return false
	}
	if slices.ContainsFunc(entries, isJournal) {
		return true
	}
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		below, err := os.ReadDir(filepath.Join(folder, e.Name()))
		return err == nil && slices.ContainsFunc(below, isJournal) // no folder, or not ours to read
	})
}

// isJournal knows files by their names; one that was not closed in order has a tilde.
func isJournal(e os.DirEntry) bool {
	return !e.IsDir() && (strings.HasSuffix(e.Name(), ".journal") || strings.HasSuffix(e.Name(), ".journal~"))
}
