package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/display"
)

// noFollow refuses a symbolic link as the last part of a path. [os.Root] checks the others.
const noFollow = unix.O_NOFOLLOW

const (
	maxName   = 100
	maxID     = 200
	maxFolder = 255 // of each part of a folder's path: the limit of a file name
)

// checkName returns an error if name is not valid for an artifact. Names that begin with a dot are
// reserved.
func checkName(name string) error { return check("artifact name", name, maxName) }

// checkID returns an error if id is not valid for a diagnosis.
func checkID(id string) error { return check("diagnosis", id, maxID) }

var nameForm = regexp.MustCompile(`^[0-9A-Za-z_][0-9A-Za-z._-]*$`)

func check(what, s string, limit int) error {
	if len(s) > limit || !nameForm.MatchString(s) {
		return fmt.Errorf(`%s "%s": want letters, digits, '.', '_' and '-', a letter or digit first, at most %d`, what, display.Safe(s, limit), limit)
	}
	return nil
}

// CheckFolder returns an error if no node can store results in folder, which is relative to
// [Config.Storage] or an absolute path.
func CheckFolder(folder string) error {
	rest, absolute := strings.CutPrefix(folder, "/")
	if absolute && OfSystem(folder) {
		return fmt.Errorf("%s is a system folder", display.Safe(folder, maxFolder))
	}
	for part := range strings.SplitSeq(rest, "/") {
		if part == "" || part == "." {
			continue
		}
		if err := check("folder", part, maxFolder); err != nil {
			return err
		}
	}
	return nil
}

// OfSystem reports whether Kernosis never writes to an absolute path: the root, or a path below
// the host's boot, runtime or configuration folders.
func OfSystem(path string) bool {
	path = filepath.Clean(path)
	return path == "/" || slices.ContainsFunc([]string{
		"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root", "/run", "/sbin", "/sys", "/usr",
		"/var/lib/containerd", "/var/lib/containers", "/var/lib/docker", "/var/lib/etcd", "/var/lib/kubelet", "/var/run",
	}, func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") })
}

// below returns an operation's folder as a path below [Config.Storage].
func (s *Store) below(folder string) (string, error) {
	if err := CheckFolder(folder); err != nil {
		return "", err
	}
	if !filepath.IsAbs(folder) {
		return filepath.Clean(folder), nil
	}
	path, err := filepath.Rel(s.cfg.Storage, filepath.Clean(folder))
	if err != nil || !filepath.IsLocal(path) {
		return "", fmt.Errorf("%s is not below %s, the only folder in which this node keeps results of operations (--diagnose-storage-dir)", folder, s.cfg.Storage)
	}
	return path, nil
}

// makeFolder creates a folder below [Config.Storage]. None of its parts may be a symbolic link:
// [os.Root] refuses links that lead out of it, but others would still lead to a folder that nobody
// has configured.
func (s *Store) makeFolder(path string) error {
	root, err := s.storage.available()
	if err != nil {
		return err
	}
	return s.storage.named(bounded.Err(&s.storage.calls, storageWithin, func() error {
		at := ""
		for part := range strings.SplitSeq(path, "/") {
			at = filepath.Join(at, part)
			if err := root.Mkdir(at, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			info, err := root.Lstat(at)
			if err != nil {
				return err
			}
			if !info.IsDir() {
				return fmt.Errorf("%s is a symbolic link or a file: %w", filepath.Join(s.cfg.Storage, at), unix.ENOTDIR)
			}
		}
		return nil
	}))
}

// use records in the index that a diagnosis has files in an operation's folder, before it creates
// any, so that files of a killed agent are found there. The disk lock must not be held.
func (r *Run) use(folder string) error {
	r.s.disk.Lock()
	defer r.s.disk.Unlock()
	if r.s.storage.isRemoving(r.id) {
		return fmt.Errorf("earlier results in %s are still being removed: %w", r.s.cfg.Storage, bounded.ErrLate)
	}
	if slices.Contains(r.d.folders, folder) {
		return nil
	}
	err := r.s.root.Mkdir(r.id, 0o700)
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = r.s.addToIndex(r.id, Artifact{Folder: folder})
	}
	if err == nil {
		r.d.folders = append(r.d.folders, folder)
	}
	return err
}
