package artifact

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

const (
	indexFile     = ".index"
	partialSuffix = ".partial" // of a name that begins with a dot
	// maxIndexLine bounds a line of .index: a name and some numbers.
	maxIndexLine = 4 << 10
)

// partialName returns the name that an artifact has while it is written.
func partialName(name string) string { return "." + name + partialSuffix }

// load reads the folders. What isn't of this store is left as it is, and told.
func (s *Store) load() error {
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() || checkID(e.Name()) != nil {
			s.log.Warn("folder of artifacts has something else", "dir", s.cfg.Dir, "name", e.Name())
			continue
		}
		if err := s.loadDiagnosis(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) loadDiagnosis(id string) error {
	entries, err := fs.ReadDir(s.root.FS(), id)
	if err != nil {
		return err
	}
	d, known, foreign := &diagnosis{artifacts: map[string]Artifact{}}, s.readIndex(id), false
	for _, e := range entries {
		name := e.Name()
		switch {
		case name == indexFile:
		case strings.HasPrefix(name, ".") && strings.HasSuffix(name, partialSuffix):
			if err := s.root.Remove(id + "/" + name); err != nil {
				return err
			}
			s.stats.Partial++
			s.log.Info("artifact was left half written, and is removed", "diagnosis", id, "file", name)
		case !e.Type().IsRegular() || checkName(name) != nil:
			s.log.Warn("folder of artifacts has something else", "diagnosis", id, "name", name)
			foreign = true
		default:
			a, err := s.loadArtifact(id, e, known)
			if err != nil {
				return err
			}
			d.artifacts[name] = a
			s.stats.Bytes += a.Size
			if a.Time.After(d.last) {
				d.last = a.Time
			}
		}
	}
	if len(d.artifacts) == 0 && !foreign {
		return s.root.RemoveAll(id)
	}
	if len(d.artifacts) == 0 {
		return nil
	}
	s.diagnoses[id] = d
	return nil
}

// loadArtifact returns what the index says of a file, or else what is in it.
func (s *Store) loadArtifact(id string, e fs.DirEntry, known map[string]Artifact) (Artifact, error) {
	info, err := e.Info()
	if err != nil {
		return Artifact{}, err
	}
	a, ok := known[e.Name()]
	if ok && a.Size == info.Size() {
		return a, nil
	}
	f, err := s.root.OpenFile(id+"/"+e.Name(), os.O_RDONLY|noFollow, 0)
	if err != nil {
		return Artifact{}, err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return Artifact{}, fmt.Errorf("read artifact %s of %s: %w", e.Name(), id, err)
	}
	a = Artifact{Name: e.Name(), Size: n, SHA256: hex.EncodeToString(sum.Sum(nil)), Time: info.ModTime()}
	s.addToIndex(id, a)
	return a, nil
}

// readIndex returns what the index of a diagnosis says. A line that was torn by a
// crash says nothing.
func (s *Store) readIndex(id string) map[string]Artifact {
	known := map[string]Artifact{}
	f, err := s.root.OpenFile(id+"/"+indexFile, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return known
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxIndexLine)
	for lines.Scan() {
		var a Artifact
		if json.Unmarshal(lines.Bytes(), &a) == nil && len(a.SHA256) == hex.EncodedLen(sha256.Size) && a.Time.Before(time.Now().Add(time.Hour)) {
			known[a.Name] = a
		}
	}
	return known
}

// addToIndex notes an artifact, in one write that begins its own line. Where that fails
// the artifact is there all the same, and is read at the next Open.
func (s *Store) addToIndex(id string, a Artifact) {
	line, err := json.Marshal(a)
	if err == nil {
		var f *os.File
		if f, err = s.root.OpenFile(id+"/"+indexFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND|noFollow, 0o600); err == nil {
			_, err = f.Write(append(append([]byte("\n"), line...), '\n'))
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		s.log.Warn("artifact is not in its index", "diagnosis", id, "artifact", a.Name, "error", err)
	}
}
