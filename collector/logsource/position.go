package logsource

import (
	"path/filepath"
	"time"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/collector/logs/journald"
	"github.com/kernosis/kernosis/collector/statefile"
)

// saved is the state of the position file.
type saved struct {
	at       time.Time // of the last save, or check
	position logs.Position
	failing  bool // the last attempt failed, which was reported
}

// positionFile is the content of the position file.
type positionFile struct {
	Version int `json:"version"`
	// Plugin and Path identify the log: another one is read from its beginning.
	Plugin   string        `json:"plugin"`
	Path     string        `json:"path,omitempty"`
	Position logs.Position `json:"position"`
	// Boot is the random id of the boot in which it was saved.
	Boot string `json:"boot,omitempty"`
	// Windows are lines before the position; after a reboot they are dropped, because lines of
	// another boot do not directly follow them.
	Windows []window `json:"windows,omitempty"`
}

// saveWithin is how long lines may be blocked by saving the position: a disk may hang.
const saveWithin = time.Second

// positionVersion changes when older versions of Kernosis must no longer read the format.
const positionVersion = 1

func (l *source) positionPath() string {
	if l.o.StateDir == "" {
		return ""
	}
	return filepath.Join(l.o.StateDir, l.cfg.Name+".json")
}

// load returns the position of an earlier run; "" if there is none. A bad one is reported as a loss.
func (l *source) load() logs.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams.use(l.patterns.Load())
	path := l.positionPath()
	if path == "" {
		return ""
	}
	var f positionFile
	found, err := statefile.File{Path: path}.Load(positionVersion, &f)
	if err != nil {
		l.o.Log.Warn("saved position is unreadable", "error", err)
		l.lost(&logs.Loss{Reason: logs.BadPosition})
		return ""
	}
	if !found {
		return ""
	}
	if f.Plugin != l.cfg.Plugin || f.Path != l.cfg.Path && !(journalds(f.Path) && journalds(l.cfg.Path)) {
		l.o.Log.Info("saved position belongs to another log", "plugin", f.Plugin, "path", f.Path)
		return ""
	}
	if f.Boot == hostfs.BootID() {
		l.streams.resume(f.Windows)
	}
	l.saved.position = f.Position
	return f.Position
}

// journalds reports whether a path is of the journal that journald itself keeps, and may move from
// memory to disk: its entries stay the same, so a position is valid in both places.
func journalds(path string) bool { return path == "" || path == journald.Folder }

// save writes the position, after reporting everything before it that is still pending: what is
// before a saved position is never reported again.
func (l *source) save() {
	now := time.Now()
	l.emitAllHeld()
	l.emitAllLosses(now)
	l.settle()
	// Also if it fails: retrying at each line would be expensive.
	l.events, l.wantSave, l.saved.at = 0, false, now
	if l.reader == nil || l.positionPath() == "" {
		return
	}
	position := l.reader.Position()
	if position == l.saved.position {
		return
	}
	f := positionFile{
		Version: positionVersion, Plugin: l.cfg.Plugin, Path: l.cfg.Path, Position: position,
		Boot: hostfs.BootID(), Windows: l.streams.windows(),
	}
	err := bounded.Err(&l.saving, saveWithin, func() error { return statefile.File{Path: l.positionPath()}.Save(f) })
	if err == nil {
		l.saved.position, l.saved.failing = position, false
		return
	}
	l.stats.SaveErrors++
	if !l.saved.failing {
		l.o.Log.Error("position not saved: lines may be reported again after a restart", "error", err)
	}
	l.saved.failing = true
}
