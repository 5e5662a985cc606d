package logsource

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/collector/logs/file"
	"github.com/kernosis/kernosis/collector/logs/journald"
	"github.com/kernosis/kernosis/collector/logs/kmsg"
)

// reader is implemented by the packages below collector/logs.
type reader interface {
	Run(ctx context.Context, handle func(logs.Item) error) error
	Position() logs.Position
}

// openReader returns the reader of a log.
func openReader(l *source, position logs.Position, status func(error)) (reader, error) {
	c := &l.cfg
	lookback := thisBoot(c.Lookback, hostfs.BootTime())
	switch c.Plugin {
	case KMsg:
		return kmsg.New(kmsg.Config{
			Path: KMsgPath(l.o.HostRoot, c.Path), Position: position, Lookback: lookback, Status: status,
		}), nil
	case Journald:
		return journald.New(journald.Config{
			Root: l.o.HostRoot, Directory: c.Path, Filter: journald.Filter{Identifiers: c.Identifiers},
			Position: position, Lookback: lookback, Status: status, Log: l.o.Log,
		})
	default:
		return file.New(file.Config{
			Path: c.Path, Root: l.o.HostRoot, Format: c.Format, Skip: c.Skip,
			Position: position, Lookback: lookback, Status: status, Log: l.o.Log,
		})
	}
}

// thisBoot limits a lookback to this boot.
func thisBoot(lookback, uptime time.Duration) time.Duration { return max(0, min(lookback, uptime)) }

// KMsgPath returns the device below the host's root, or, if there is none, the container's own,
// which belongs to the same kernel.
func KMsgPath(root, path string) string {
	if path == "" {
		path = "/dev/kmsg"
	}
	if root == "" {
		return path
	}
	host := filepath.Join(root, path)
	if _, err := os.Stat(host); errors.Is(err, fs.ErrNotExist) {
		return path
	}
	return host
}
