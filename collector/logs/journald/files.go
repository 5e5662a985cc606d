package journald

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNoFiles is reported if there are no readable journal files, because journalctl doesn't report
// that. A reader that follows the journal then waits for the first file; one that reads it once
// has read nothing.
var ErrNoFiles = errors.New("no journal files")

const (
	// Folder is where journald keeps its journal on disk, if it does.
	Folder = "/var/log/journal"
	// memoryFolder is where it keeps the journal otherwise.
	memoryFolder = "/run/log/journal"
)

// look returns ErrNoFiles if journalctl would find no files.
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

// HasFiles reports whether there is a journal file in a folder, or in one of its subfolders (one
// per machine, named by its id).
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
		return err == nil && slices.ContainsFunc(below, isJournal) // an error: not a folder, or not readable
	})
}

// isJournal recognizes journal files by their names; one that was not closed properly ends with a
// tilde.
func isJournal(e os.DirEntry) bool {
	return !e.IsDir() && (strings.HasSuffix(e.Name(), ".journal") || strings.HasSuffix(e.Name(), ".journal~"))
}
