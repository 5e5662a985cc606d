package collector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// fsError decodes errors that filesystems detect. It attaches hooks of filesystems whose module is
// loaded after the agent started.
type fsError struct {
	env *environment
	attribution
	names
	hooks onDemandHooks
	// attempts are those to attach the hooks of the loaded filesystems.
	attempts map[string]*attachAttempts
	text     texts[[64]byte] // function names

	// The event points to these; they are reused for the next event.
	task   event.Task
	device event.Device
	data   event.FSErrorData
}

// attachAttempts are the attempts to attach a filesystem's hooks since it was loaded.
type attachAttempts struct {
	module uint64 // see [fsError.module]
	left   int    // 0 once all hooks are attached
	err    error  // of the latest one
}

func newFSError(env *environment, l *bpf.Loaded) *fsError {
	return &fsError{env: env, attribution: attribution{attributor: env.attributor}, hooks: l, attempts: map[string]*attachAttempts{}}
}

func (f *fsError) decode(_ *bpf.Header, raw []byte, ev *event.Event) (bool, error) {
	r, err := bpf.View[bpf.FSError](raw)
	if err != nil {
		return false, err
	}
	ev.Kind = event.FSError
	f.names.task(&f.task, &r.Task)
	ev.Task = &f.task
	f.subject(ev, &r.Memory, &r.Default)

	major, minor := hostfs.SplitKernelDev(r.Dev)
	f.device = f.env.devices.DeviceAt(major, minor, time.Duration(ev.BootTime))
	if id := bpf.CString(r.ID[:]); isNumber(f.device.Name) && len(id) > 0 {
		f.device.Name = display.Safe(string(id), 64)
	}
	ev.Device = &f.device

	f.data = event.FSErrorData{FSType: f.names.comm(r.FSType), Function: f.function(r), Line: r.Line}
	ev.FSError = &f.data
	f.env.fsError(r.Dev, time.Duration(ev.BootTime), endsWriting(r.What, &f.data))
	return true, nil
}

// endsWriting reports whether a filesystem was shut down, or an ext4 found its journal aborted
// (the only other caller of ext4_abort is a remount that requests it).
func endsWriting(what uint32, d *event.FSErrorData) bool {
	return what == bpf.FSErrorShutdown || hostfs.IsExt4(d.FSType) && d.Function == hostfs.Ext4AbortedIn
}

// maxFunctions bounds the memory of function names: a kernel reports a few dozen.
const maxFunctions = 256

// function returns where the kernel detected the error: a function for ext4, a file for xfs.
func (f *fsError) function(r *bpf.FSError) string {
	s := f.text.of(r.Function, maxFunctions, func() string {
		return display.Safe(string(bpf.CString(r.Function[:])), 128)
	})
	if s == "" && r.What == bpf.FSErrorShutdown {
		return "shutdown" // ext4, and xfs on 5.10, do not say who requested it
	}
	return s
}

// fsEvery is how often to check which filesystems are loaded: one that was just mounted for the
// first time is unlikely to fail at once, and [mountSource] asks it until then.
const fsEvery = 10 * time.Second

// fsAttempts is how often to try to attach a filesystem's hooks, every fsEvery: that may fail for a
// moment, as while the module is being loaded. One attempt takes tens of milliseconds.
const fsAttempts = 3

func (f *fsError) poll(context.Context, time.Time, func(*event.Event)) (time.Duration, error) {
	return fsEvery, f.look()
}

// look attaches the hooks of the filesystems that are loaded now.
func (f *fsError) look() error {
	text, err := os.ReadFile(f.env.fs.Path("/proc/filesystems"))
	if err != nil {
		return err
	}
	return f.attach(parseFilesystems(string(text)))
}

// attach attaches the hooks of the loaded filesystems. It reports only the failure of the last attempt.
func (f *fsError) attach(loaded []string) error {
	err := f.detachUnloaded(loaded)
	for _, fsType := range loaded {
		hooks := bpf.FSErrorHooks(fsType)
		if len(hooks) == 0 {
			continue
		}
		a := f.attempts[fsType]
		if a == nil {
			a = &attachAttempts{module: f.module(fsType), left: fsAttempts}
			f.attempts[fsType] = a
		}
		if a.left == 0 {
			continue
		}
		a.left--
		a.err = nil
		for _, h := range hooks {
			a.err = errors.Join(a.err, f.hooks.Attach(h)) // does nothing for attached hooks
		}
		if a.err == nil {
			a.left = 0
			continue
		}
		a.err = fmt.Errorf("can't detect errors of %s: %w", fsType, a.err)
		if a.left == 0 {
			err = errors.Join(err, a.err)
		}
	}
	f.env.fsWatched(f.watched())
	return err
}

// watched returns the loaded filesystems whose errors are detected.
func (f *fsError) watched() (types []string) {
	for _, fsType := range slices.Sorted(maps.Keys(f.attempts)) {
		if a := f.attempts[fsType]; a.left == 0 && a.err == nil {
			types = append(types, fsType)
		}
	}
	return types
}

// detachUnloaded detaches the hooks of filesystems whose module was unloaded, also if it was loaded
// again: a kprobe does not keep its module loaded, and never fires afterwards.
func (f *fsError) detachUnloaded(loaded []string) (err error) {
	for fsType, a := range f.attempts {
		if slices.Contains(loaded, fsType) && f.module(fsType) == a.module {
			continue
		}
		delete(f.attempts, fsType)
		for _, h := range bpf.FSErrorHooks(fsType) {
			err = errors.Join(err, f.hooks.Detach(h))
		}
	}
	return err
}

// module returns a number that differs each time a filesystem's module is loaded: the inode of its
// directory. It is 0 if there is none.
func (f *fsError) module(fsType string) uint64 {
	var st unix.Stat_t
	_ = unix.Stat(f.env.fs.Path("/sys/module/"+fsType), &st)
	return st.Ino
}

// blind returns why errors of a loaded filesystem are not detected.
func (f *fsError) blind() (err error) {
	for _, fsType := range slices.Sorted(maps.Keys(f.attempts)) {
		if a := f.attempts[fsType]; a.left == 0 {
			err = errors.Join(err, a.err)
		}
	}
	return err
}

// parseFilesystems returns the types in the text of /proc/filesystems.
func parseFilesystems(text string) []string {
	var types []string
	for line := range strings.Lines(text) { // "nodev\tproc", "\text4"
		if _, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); name != "" {
			types = append(types, name)
		}
	}
	return types
}
