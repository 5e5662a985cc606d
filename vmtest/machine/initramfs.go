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

	"github.com/kernosis/kernosis/vmtest/kernel"
)

// archive writes an initramfs: a cpio archive in the kernel's "newc" format, uncompressed, because
// decompressing takes longer here than reading.
type archive struct {
	w     cpio.RecordWriter
	inode uint64
	made  map[string]bool // paths in the archive
	err   error           // the first one; nothing is added after it
}

func (a *archive) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

func (a *archive) add(path string, r cpio.Record) {
	a.dir(filepath.Dir(path))
	if a.err != nil {
		return
	}
	a.made[path] = true
	a.inode++
	r.Name, r.Ino = strings.TrimPrefix(path, "/"), a.inode
	if err := a.w.WriteRecord(r); err != nil {
		a.err = fmt.Errorf("pack %s: %w", path, err)
	}
}

// dir adds a folder and its parents.
func (a *archive) dir(path string) {
	if !a.made[path] {
		a.add(path, cpio.Directory("", 0o755))
	}
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
func (a *archive) file(path, from string) {
	dir, err := onDisk(filepath.Dir(path))
	path = filepath.Join(dir, filepath.Base(path))
	if err != nil || a.made[path] {
		a.fail(err)
		return
	}
	f, err := os.Open(from)
	if err != nil {
		a.fail(err)
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("pack %s: is no regular file", from)
	}
	if err != nil {
		a.fail(err)
		return
	}
	a.add(path, cpio.Record{ReaderAt: f, Info: cpio.Info{Mode: unix.S_IFREG | uint64(st.Mode().Perm()), NLink: 1, FileSize: uint64(st.Size())}})
}

// program adds an executable of the host at path, and its libraries at their own paths.
func (a *archive) program(path, from string) {
	libs, err := libraries(from)
	a.fail(err)
	for _, l := range libs {
		a.file(l, l)
	}
	a.file(path, from)
}

func (a *archive) tree(dir string) {
	a.fail(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			a.add(path, cpio.Symlink("", target))
		case d.Type().IsRegular():
			a.file(path, path)
		}
		return nil
	}))
}

func (s Spec) initramfs(w io.Writer, p plan) error {
	a := &archive{w: cpio.Newc.Writer(w), made: map[string]bool{"/": true}}
	// The host's links of a merged /usr, because programs refer to their libraries through them.
	for _, name := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
		if target, err := os.Readlink(name); err == nil { // otherwise a real folder, or missing
			a.add(name, cpio.Symlink("", target))
		}
	}
	a.add(consolePath, cpio.CharDev("", 0o600, 5, 1))
	a.program(initPath, s.Init)
	if len(p.Args) > 0 {
		s.userland(a, &p)
	}
	raw, err := json.Marshal(p)
	a.fail(err)
	a.add(planPath, cpio.StaticFile("", string(raw), 0o644))
	if a.err != nil {
		return a.err
	}
	return cpio.WriteTrailer(a.w)
}

// userland adds what the program needs and completes the plan.
func (s Spec) userland(a *archive, p *plan) {
	a.program(p.Args[0], p.Args[0])
	for _, name := range s.Config.Programs {
		a.fail(s.program(a, name))
	}
	for _, f := range s.Config.Files {
		from := f
		if s.Kernel.Root != "" {
			from += "-" + s.Kernel.Arch()
		}
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
			a.fail(&kernel.SetupError{What: from + " does not exist", Do: "make vmtest-tools"})
		}
		a.file(f, from)
	}
	a.dir(p.Dir)
	testdata := filepath.Join(p.Dir, "testdata")
	if st, err := os.Stat(testdata); err == nil && st.IsDir() {
		a.tree(testdata)
	}
	a.fail(s.modules(a, p))
}

func (s Spec) program(a *archive, name string) error {
	if s.Kernel.Root == "" {
		path, err := kernel.FindProgram(name)
		if err == nil {
			a.program(path, path)
		}
		return err
	}
	f := foreign{s.Kernel.Root}
	path, err := f.find(name)
	if err != nil {
		return err
	}
	libs, err := f.libraries(path)
	for _, l := range append(libs, path) {
		a.file(l, filepath.Join(f.root, l))
	}
	return err
}

// modules adds the kernel's modules, their index and its configuration, and adds the modules to
// load to the plan.
func (s Spec) modules(a *archive, p *plan) error {
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
			p.Modules = append(p.Modules, m)
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
		a.file(filepath.Join(root, f), filepath.Join(s.Kernel.ModulesDir, f))
	}
	a.file("/boot/config-"+s.Kernel.Release, s.Kernel.Config)
	return nil
}
