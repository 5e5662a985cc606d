package artifact

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	indexFile     = ".index"
	partialSuffix = ".partial" // the name also begins with a dot
	// maxIndex bounds how much of .index is read. A line has some 300 bytes.
	maxIndex = 4 << 20
)

// partialName returns the name of an artifact while it is written.
func partialName(name string) string { return "." + name + partialSuffix }

// load reads the store's folders. It logs and skips foreign entries and entries that it can't read:
// they stay on disk, and do not count towards the budget.
func (s *Store) load() error {
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() || checkID(e.Name()) != nil {
			s.log.Warn("unexpected entry in the folder of artifacts", "dir", s.cfg.Dir, "name", e.Name())
			continue
		}
		s.loadDiagnosis(e.Name())
	}
	return nil
}

func (s *Store) loadDiagnosis(id string) {
	known, folders := s.readIndex(id)
	d, whole := &diagnosis{artifacts: map[string]Artifact{}, folders: folders}, true
	for _, folder := range append(slices.Clone(folders), "") {
		at, err := s.placeOf(id, folder)
		if err != nil {
			s.log.Warn("artifacts in an operation's folder are ignored and do not count towards the budget", "diagnosis", id, "folder", folder, "error", err)
			whole = false // another store may own it
			continue
		}
		l, err := reach(at, storageWithin, func(step func() error) (loaded, error) { return s.loadPlace(id, folder, at, known, step) })
		if err != nil {
			s.log.Warn("can't read a folder of artifacts", "diagnosis", id, "folder", folder, "error", err)
			whole = false
			continue
		}
		whole = whole && l.whole
		s.stats.Partial += l.partial
		for _, a := range l.artifacts {
			d.artifacts[a.Name] = a
			s.stats.Bytes += a.Size
			if a.Time.After(d.last) {
				d.last = a.Time
			}
		}
	}
	if !whole {
		s.left[id] = d
	}
	if len(d.artifacts) > 0 {
		s.diagnoses[id] = d
		return
	}
	if !whole {
		return
	}
	if err := s.removeFolders(id, folders); err != nil {
		s.log.Warn("can't remove the empty folders of a diagnosis", "diagnosis", id, "error", err)
	}
}

// loaded is what a folder of a diagnosis contains.
type loaded struct {
	artifacts []Artifact
	partial   uint64 // removed incomplete files
	whole     bool   // nothing else, and nothing that can't be read or removed
}

// loadPlace reads one folder of a diagnosis. It calls step after each file, and ends if that fails.
func (s *Store) loadPlace(id, folder string, at place, known map[string]Artifact, step func() error) (loaded, error) {
	l := loaded{whole: true}
	entries, err := fs.ReadDir(at.root.FS(), at.dir)
	if folder != "" && errors.Is(err, fs.ErrNotExist) {
		return l, nil // somebody removed it
	} else if err != nil {
		return l, err
	}
	for _, e := range entries {
		if err := step(); err != nil {
			return l, err
		}
		name := e.Name()
		switch {
		case name == indexFile && folder == "":
		case strings.HasPrefix(name, ".") && strings.HasSuffix(name, partialSuffix):
			if err := at.root.Remove(at.file(name)); err != nil {
				s.log.Warn("can't remove an incomplete artifact", "diagnosis", id, "file", name, "error", err)
				l.whole = false
				continue
			}
			l.partial++
			s.log.Info("removed an incomplete artifact", "diagnosis", id, "file", name)
		case !e.Type().IsRegular() || checkName(name) != nil:
			s.log.Warn("unexpected entry in the folder of artifacts", "diagnosis", id, "name", name)
			l.whole = false
		default:
			a, err := s.loadArtifact(id, folder, at, e, known)
			if err != nil {
				s.log.Warn("can't read an artifact", "diagnosis", id, "artifact", name, "error", err)
				l.whole = false
				continue
			}
			l.artifacts = append(l.artifacts, a)
		}
	}
	return l, nil
}

// loadArtifact returns a file's entry in the index, or computes it from the content.
func (s *Store) loadArtifact(id, folder string, at place, e fs.DirEntry, known map[string]Artifact) (Artifact, error) {
	info, err := e.Info()
	if err != nil {
		return Artifact{}, err
	}
	a, ok := known[e.Name()]
	if ok && a.Size == info.Size() && a.Folder == folder {
		return a, nil
	}
	f, err := at.root.OpenFile(at.file(e.Name()), os.O_RDONLY|noFollow, 0)
	if err != nil {
		return Artifact{}, err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return Artifact{}, fmt.Errorf("read artifact %s of %s: %w", e.Name(), id, err)
	}
	a = Artifact{Name: e.Name(), Size: n, SHA256: hex.EncodeToString(sum.Sum(nil)), Time: info.ModTime(), Folder: folder}
	if err := s.addToIndex(id, a); err != nil {
		s.log.Warn("can't add an artifact to its index", "diagnosis", id, "artifact", a.Name, "error", err)
	}
	return a, nil
}

// readIndex returns the artifacts in the index of a diagnosis, and the operations' folders in which
// it has files. It skips lines that a crash has torn, and computes missing entries from the files.
func (s *Store) readIndex(id string) (known map[string]Artifact, folders []string) {
	known = map[string]Artifact{}
	f, err := s.root.OpenFile(id+"/"+indexFile, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return known, nil
	}
	defer f.Close()
	index, err := io.ReadAll(io.LimitReader(f, maxIndex))
	if err != nil {
		s.log.Warn("can't read the index of artifacts", "diagnosis", id, "error", err)
	}
	for line := range bytes.Lines(index) {
		var a Artifact
		if json.Unmarshal(line, &a) != nil {
			continue
		}
		if a.Folder != "" && !slices.Contains(folders, a.Folder) {
			folders = append(folders, a.Folder)
		}
		sum, err := hex.DecodeString(a.SHA256)
		if err == nil && len(sum) == sha256.Size && checkName(a.Name) == nil && a.Size >= 0 && a.Time.Before(time.Now().Add(time.Hour)) {
			known[a.Name] = a
		}
	}
	return known, folders
}

// addToIndex appends an artifact, or only a folder, in one write that starts with a newline.
func (s *Store) addToIndex(id string, a Artifact) error {
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	f, err := s.root.OpenFile(id+"/"+indexFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND|noFollow, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(append([]byte("\n"), line...), '\n'))
	return errors.Join(err, f.Close())
}
