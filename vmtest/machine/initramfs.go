package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/guest"
	"github.com/kernosis/kernosis/vmtest/kernel"
)

// archive writes an initramfs: a cpio archive in the kernel's "newc" format, uncompressed, because
// decompressing takes longer here than reading.
type archive struct {
	w     cpio.RecordWriter
	inode uint64
	made  map[string]bool // paths in the archive
}

func newArchive(w io.Writer) *archive {
	return &archive{w: cpio.Newc.Writer(w), made: map[string]bool{"/": true}}
}

func (a *archive) add(path string, r cpio.Record) error {
	if err := a.parents(path); err != nil {
		return err
	}
	a.made[path] = true
	a.inode++
	r.Name, r.Ino = strings.TrimPrefix(path, "/"), a.inode
	if err := a.w.WriteRecord(r); err != nil {
		return fmt.Errorf("pack %s: %w", path, err)
	}
	return nil
}

func (a *archive) parents(path string) error {
	return a.dir(filepath.Dir(path))
}

func (a *archive) symlink(path, target string) error {
	return a.add(path, cpio.Symlink("", target))
}

func (a *archive) bytes(path string, content []byte) error {
	return a.add(path, cpio.StaticFile("", string(content), 0o644))
}

// dir adds a folder and its parents.
func (a *archive) dir(path string) error {
	if a.made[path] {
		return nil
	}
	return a.add(path, cpio.Directory("", 0o755))
}

// onDisk resolves the symbolic links in the existing part of a path on the host: in the machine
// they may lead elsewhere.
func onDisk(path string) (string, error) {
	dir, rest := path, ""
	for {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest)
	}
}

// file adds a file of the host at path.
func (a *archive) file(path, from string) error {
	dir, err := onDisk(filepath.Dir(path))
	if err != nil {
		return err
	}
	path = filepath.Join(dir, filepath.Base(path))
	if a.made[path] {
		return nil
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("pack %s: is no regular file", from)
	}
	r := cpio.Record{ReaderAt: f, Info: cpio.Info{Mode: unix.S_IFREG | uint64(st.Mode().Perm()), NLink: 1, FileSize: uint64(st.Size())}}
	return a.add(path, r)
}

// program adds an executable of the host at path, and its libraries at their own paths.
func (a *archive) program(path, from string) error {
	libs, err := libraries(from)
	if err != nil {
		return err
	}
	for _, l := range libs {
		if err := a.file(l, l); err != nil {
			return err
		}
	}
	return a.file(path, from)
}

// tree adds a folder and everything below it.
func (a *archive) tree(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return a.symlink(path, target)
		case d.Type().IsRegular():
			return a.file(path, path)
		default:
			return nil
		}
	})
}

// rootLinks adds the host's links of a merged /usr, because programs refer to their libraries
// through them.
func (a *archive) rootLinks() error {
	for _, name := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
		target, err := os.Readlink(name)
		if err != nil {
			continue // a real folder, or missing
		}
		if err := a.symlink(name, target); err != nil {
			return err
		}
	}
	return nil
}

func (a *archive) close() error { return cpio.WriteTrailer(a.w) }

// initramfs writes the machine's initramfs.
func (s Spec) initramfs(w io.Writer, plan guest.Plan) error {
	a := newArchive(w)
	if err := a.rootLinks(); err != nil {
		return err
	}
	if err := a.add(guest.Console, cpio.CharDev("", 0o600, 5, 1)); err != nil {
		return err
	}
	if err := a.program(guest.InitPath, s.Init); err != nil {
		return err
	}
	if len(plan.Args) > 0 {
		if err := s.userland(a, &plan); err != nil {
			return err
		}
	}
	raw, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	if err := a.bytes(guest.PlanPath, raw); err != nil {
		return err
	}
	return a.close()
}

// userland adds what the program needs and completes the plan.
func (s Spec) userland(a *archive, plan *guest.Plan) error {
	if err := a.program(plan.Args[0], plan.Args[0]); err != nil {
		return err
	}
	for _, name := range s.Config.Programs {
		if err := s.program(a, name); err != nil {
			return err
		}
	}
	for _, f := range s.Config.Files {
		from := f
		if s.Kernel.Root != "" {
			from += "-" + s.Kernel.Arch()
		}
		if err := a.file(f, from); errors.Is(err, fs.ErrNotExist) {
			return &kernel.SetupError{What: from + " does not exist", Do: "make vmtest-tools"}
		} else if err != nil {
			return err
		}
	}
	if err := a.dir(plan.Dir); err != nil {
		return err
	}
	if testdata := filepath.Join(plan.Dir, "testdata"); isDir(testdata) {
		if err := a.tree(testdata); err != nil {
			return err
		}
	}
	return s.modules(a, plan)
}

// program adds a program for the machine's architecture.
func (s Spec) program(a *archive, name string) error {
	if s.Kernel.Root == "" {
		path, err := kernel.FindProgram(name)
		if err != nil {
			return err
		}
		return a.program(path, path)
	}
	f := foreign{s.Kernel.Root}
	path, err := f.find(name)
	if err != nil {
		return err
	}
	libs, err := f.libraries(path)
	if err != nil {
		return err
	}
	for _, l := range append(libs, path) {
		if err := a.file(l, filepath.Join(f.root, l)); err != nil {
			return err
		}
	}
	return nil
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// modules adds the kernel's modules, their index and its configuration, and adds the modules to
// load to the plan.
func (s Spec) modules(a *archive, plan *guest.Plan) error {
	root := filepath.Join("/lib/modules", s.Kernel.Release)
	names := append([]string{}, s.Config.Modules...)
	for _, m := range s.Config.Load {
		name, _, _ := strings.Cut(m, " ")
		names = append(names, name)
		_, missing, err := s.Kernel.Modules([]string{name})
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			plan.Modules = append(plan.Modules, m)
		}
	}
	files, _, err := s.Kernel.Modules(names)
	if err != nil {
		return err
	}
	indexes, err := filepath.Glob(filepath.Join(s.Kernel.ModulesDir, "modules.*"))
	if err != nil {
		return err
	}
	for _, path := range indexes {
		files = append(files, filepath.Base(path))
	}
	for _, f := range files {
		if err := a.file(filepath.Join(root, f), filepath.Join(s.Kernel.ModulesDir, f)); err != nil {
			return err
		}
	}
	if s.Kernel.Config == "" {
		return nil
	}
	return a.file("/boot/config-"+s.Kernel.Release, s.Kernel.Config)
}
