package logsource

import (
	"path/filepath"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/collector/logs/file"
	"github.com/kernosis/kernosis/collector/logs/journald"
)

// The plugins, which read logs.
const (
	KMsg     = "kmsg"
	Journald = "journald"
	File     = "file"
	Crash    = event.CrashLog
)

// Plugins returns the names of all plugins.
func Plugins() []string { return []string{KMsg, Journald, File, Crash} }

// Config configures one log.
type Config struct {
	// Name is the name of the log in rules; it must be unique. The log of plugin Crash is always event.CrashLog.
	Name string
	// Plugin is KMsg, Journald, File or Crash.
	Plugin string
	// Path is the file (mandatory), the device ("": /dev/kmsg), or the folder of the journal ("":
	// journald's); below the host's root.
	Path string
	// Lookback is how far back to begin at the first start, at most to the boot; 0: new lines
	// only. For a file it requires a Format with times. For Crash: how long before the boot records
	// may have been written.
	Lookback time.Duration
	// Delay skips lines that were logged less than this after the boot.
	Delay time.Duration
	// Identifiers are the SYSLOG_IDENTIFIERs to read from a journal; empty: all.
	Identifiers []string
	// Format defines where the time and the text are in the lines of a file. Format.Kernel
	// declares that only the kernel's log is written to the file.
	Format file.Format
	// Skip are texts; lines of a file that contain one of them are skipped.
	Skip []string
}

// hasKernel reports whether the log has lines that are known to come from the kernel.
func (c *Config) hasKernel() bool {
	switch c.Plugin {
	case KMsg:
		return true
	case Journald:
		return len(c.Identifiers) == 0 || slices.Contains(c.Identifiers, event.OriginKernel)
	}
	return c.Format.Kernel
}

// MaxLogs is the maximum number of configured logs: each has a goroutine and a position.
const MaxLogs = 32

// Check returns the mistakes in c, with fields as in the configuration file: name, plugin, path …
func (c *Config) Check() document.Errors {
	var errs document.Errors
	wrong := errs.Add
	if !logpattern.ValidLog(c.Name) {
		wrong("name", "%q: want letters, digits, dots, dashes and underscores, at most 63", c.Name)
	}
	if c.Name == event.KernelLogs {
		wrong("name", "%q is reserved: rules use it for all logs that have the kernel's lines", c.Name)
	}
	if (c.Name == event.CrashLog) != (c.Plugin == Crash) {
		wrong("name", "%q: the plugin %s, and no other, has the name %s", c.Name, Crash, event.CrashLog)
	}
	if c.Lookback < 0 {
		wrong("lookback", "%s is negative", c.Lookback)
	}
	if c.Delay < 0 {
		wrong("delay", "%s is negative", c.Delay)
	}
	if c.Path != "" && !filepath.IsAbs(c.Path) {
		wrong("path", "%q: want an absolute path", c.Path)
	}
	if c.Plugin != Journald && len(c.Identifiers) > 0 {
		wrong("identifiers", "are for journald only")
	}
	if c.Plugin != File {
		format := c.Format
		if format.Kernel {
			wrong("kernel", "is for files only: %s and %s mark the kernel's lines themselves", KMsg, Journald)
			format.Kernel = false
		}
		if format != (file.Format{}) {
			wrong("format", "is for files only")
		}
		if len(c.Skip) > 0 {
			wrong("skip", "is for files only")
		}
	}
	var err error
	switch c.Plugin {
	case KMsg:
	case Crash:
		if c.Path != "" {
			wrong("path", "is not for %s, which has its own folders", Crash)
		}
		if c.Delay != 0 {
			wrong("delay", "is not for %s, whose lines are of earlier boots", Crash)
		}
	case Journald:
		_, err = journald.New(journald.Config{Filter: journald.Filter{Identifiers: c.Identifiers}})
	case File:
		if c.Path == "" {
			wrong("path", "is missing: want the file to read")
			break
		}
		if c.Lookback > 0 && c.Format.Timestamp == "" && !c.Format.Kernel {
			wrong("lookback", "needs format.timestamp, which finds the time of a line")
			break
		}
		_, err = file.New(file.Config{Path: c.Path, Format: c.Format, Skip: c.Skip})
	case "":
		wrong("plugin", "is missing: want %s, %s, %s or %s", KMsg, Journald, File, Crash)
	default:
		wrong("plugin", "%q: want %s, %s, %s or %s", c.Plugin, KMsg, Journald, File, Crash)
	}
	if err != nil {
		wrong("plugin", "%v", err)
	}
	return errs
}
