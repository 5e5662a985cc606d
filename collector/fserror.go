package collector

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

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
	// tried has the loaded filesystems whose hooks an attempt was made to attach. There is one
	// attempt each time a filesystem appears.
	tried map[string]bool
	text  texts[[64]byte] // function names

	// The event points to these; they are reused for the next event.
	task   event.Task
	device event.Device
	data   event.FSErrorData
}

func newFSError(env *environment, l *bpf.Loaded) *fsError {
	return &fsError{env: env, attribution: attribution{attributor: env.attributor}, hooks: l, tried: map[string]bool{}}
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
	f.env.fsError(r.Dev, event.Moment{Wall: ev.Time, Boot: time.Duration(ev.BootTime)}, endsWriting(r.What, &f.data))
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
// first time is unlikely to fail at once.
const fsEvery = 10 * time.Second

func (f *fsError) poll(context.Context, time.Time, func(*event.Event)) (time.Duration, error) {
	text, err := os.ReadFile(f.env.fs.Path("/proc/filesystems"))
	if err != nil {
		return fsEvery, err
	}
	return fsEvery, f.attach(parseFilesystems(string(text)))
}

func (f *fsError) attach(loaded []string) error {
	now := map[string]bool{}
	var errs []error
	for _, fsType := range loaded {
		hooks := bpf.FSErrorHooks(fsType)
		if len(hooks) == 0 {
			continue
		}
		now[fsType] = true
		if f.tried[fsType] {
			continue
		}
		for _, h := range hooks {
			// Attach does nothing for attached hooks.
			if err := f.hooks.Attach(h); err != nil {
				errs = append(errs, fmt.Errorf("can't detect errors of %s: %w", fsType, err))
			}
		}
	}
	f.tried = now
	return errors.Join(errs...)
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
