package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultPinRoot is the folder where a running agent pins its maps and links:
//
//	<root>/<stem>/<layout>-<build>/map_<name>
//	<root>/<stem>/<layout>-<build>/link_<hook>-<program>
//	<root>/<stem>/<layout>-<build>/prog_<program>
//	<root>/<stem>/state_<layout>/map_<name>
//
// After an upgrade, the agent finds what the other build pinned and takes over from it. Builds
// whose maps have the same layout share those in state_<layout>.
const DefaultPinRoot = "/sys/fs/bpf/kernosis"

// PinRoot is a folder on a BPF filesystem that this process owns.
type PinRoot struct {
	path string
	lock *os.File
}

// ErrBusy: another agent uses the folder.
var ErrBusy = errors.New("another kernosis is running")

// LockFolder locks a folder against other agents until the file is closed or the process ends. It
// writes nothing, so that it also works on a full or read-only disk.
func LockFolder(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrBusy
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), lock.Close())
	}
	return lock, nil
}

// OpenPinRoot creates the folder, mounting a BPF filesystem on /sys/fs/bpf if there is none, and
// locks it against a second agent.
func OpenPinRoot(path string) (*PinRoot, error) {
	if err := ensureBPFFS(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("pin root %s: %w", path, err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("pin root: %w", err)
	}
	lock, err := LockFolder(path)
	if err != nil {
		return nil, fmt.Errorf("pin root: %w", err)
	}
	return &PinRoot{path: path, lock: lock}, nil
}

// CheckPinRoot returns the reason why [OpenPinRoot] would fail, without creating anything. It
// returns nil if it would succeed, as far as that can be checked.
func CheckPinRoot(path string) error {
	dir := filepath.Dir(path)
	is, err := isBPFFS(dir)
	if err != nil {
		return err
	}
	if !is {
		return fmt.Errorf("%s is not a BPF filesystem", dir)
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return fmt.Errorf("write %s: %w", dir, err)
	}
	return nil
}

// Close releases the lock; what is pinned stays. It may be called more than once.
func (r *PinRoot) Close() error {
	if r == nil || r.lock == nil {
		return nil
	}
	err := r.lock.Close()
	r.lock = nil
	return err
}

// Remove unpins everything. Programs that no process holds open are detached.
func (r *PinRoot) Remove() error {
	if err := os.RemoveAll(r.path); err != nil {
		return fmt.Errorf("unpin: %w", err)
	}
	return nil
}

// versions returns the ids pinned for a stem.
func (r *PinRoot) versions(stem string) ([]string, error) {
	names, err := r.list(stem, "")
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, statePrefix) }), err
}

// list returns the names of what is pinned in a folder of a stem.
func (r *PinRoot) list(stem, name string) ([]string, error) {
	entries, err := os.ReadDir(r.dir(stem, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list pins of %s: %w", stem, err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// staleStates returns the shared map folders of a stem that belong to other layouts.
func (r *PinRoot) staleStates(stem, layout string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(r.path, stem, statePrefix+"*"))
	if err != nil {
		return nil, fmt.Errorf("list pins of %s: %w", stem, err)
	}
	own := r.dir(stem, statePrefix+layout)
	return slices.DeleteFunc(all, func(dir string) bool { return dir == own }), nil
}

const statePrefix = "state_"

// setAside renames a stem's folder, keeping the prefix, and returns it; "" if nothing is pinned.
func (r *PinRoot) setAside(stem, prefix, name string) (string, error) {
	if pinned, err := r.list(stem, prefix+name); len(pinned) == 0 {
		return "", err
	}
	for n := 0; ; n++ {
		left := r.dir(stem, fmt.Sprintf("%sleft%d-%s", prefix, n, name))
		if _, err := os.Stat(left); err == nil {
			continue // used earlier
		}
		if err := os.Rename(r.dir(stem, prefix+name), left); err != nil {
			return "", fmt.Errorf("set pins of %s aside: %w", stem, err)
		}
		return left, nil
	}
}

func (r *PinRoot) dir(stem, id string) string { return filepath.Join(r.path, stem, id) }

// File names in a version's folder. Program and hook names have no "-" and no dots, which a BPF
// filesystem allows in its root folder only.
func mapPin(dir, name string) string     { return filepath.Join(dir, "map_"+name) }
func programPin(dir, name string) string { return filepath.Join(dir, "prog_"+name) }
func linkPin(dir, hook, program string) string {
	return filepath.Join(dir, "link_"+hook+"-"+program)
}

// pinnedLinks returns the paths of pinned links, by hook and program.
func pinnedLinks(dir string) (map[string]map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list pins: %w", err)
	}
	links := map[string]map[string]string{}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), "link_")
		if !ok {
			continue
		}
		hook, program, ok := strings.Cut(rest, "-")
		if !ok {
			continue
		}
		if links[hook] == nil {
			links[hook] = map[string]string{}
		}
		links[hook][program] = filepath.Join(dir, e.Name())
	}
	return links, nil
}

func isBPFFS(dir string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, fmt.Errorf("stat %s: %w", dir, err)
	}
	return st.Type == unix.BPF_FS_MAGIC, nil
}

// ensureBPFFS mounts a BPF filesystem if there is none, as systemd and cilium do.
func ensureBPFFS(dir string) error {
	if is, err := isBPFFS(dir); is || err != nil {
		return err
	}
	if dir != "/sys/fs/bpf" {
		return fmt.Errorf("%s is not on a BPF filesystem", dir)
	}
	if err := unix.Mount("bpf", dir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RELATIME, "mode=0700"); err != nil {
		return fmt.Errorf("mount bpf on %s: %w", dir, err)
	}
	return nil
}
