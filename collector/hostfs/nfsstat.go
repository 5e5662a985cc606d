package hostfs

import (
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

// NFSMount holds the counters of /proc/PID/mountstats for one NFS mount.
type NFSMount struct {
	Source   string // server:/export, escaped
	Path     string // escaped
	FSType   string // nfs or nfs4
	Counted  bool   // the counters below are valid
	Sends    uint64 // requests sent, including retransmissions
	Receives uint64 // answers received
	Timeouts uint64 // requests that timed out
}

// maxNFSMounts is more than any node has.
const maxNFSMounts = 10_000

// ParseNFSMounts parses the text of /proc/PID/mountstats, versions 1.0 and 1.1 of the statistics.
// Lines in an unknown format are ignored.
func ParseNFSMounts(s string) []NFSMount {
	var mounts []NFSMount
	var at *NFSMount // the mount that the next lines belong to; nil: not NFS
	ops := false
	for line := range strings.Lines(s) {
		if rest, ok := strings.CutPrefix(line, "device "); ok {
			at, ops = nil, false
			if m, ok := parseMountstatsDevice(rest); ok && len(mounts) < maxNFSMounts {
				mounts = append(mounts, m)
				at = &mounts[len(mounts)-1]
			}
			continue
		}
		fields := strings.Fields(line)
		switch {
		case at == nil || len(fields) < 2:
		case fields[0] == "xprt:":
			at.addTransport(fields[1], fields[2:])
		case fields[0] == "per-op":
			ops = true
		case ops && strings.HasSuffix(fields[0], ":") && len(fields) >= 4:
			// operations, transmissions, major timeouts
			if n, err := strconv.ParseUint(fields[3], 10, 64); err == nil {
				at.Timeouts += n
			}
		}
	}
	return mounts
}

// parseMountstatsDevice parses "filer:/export mounted on /mnt with fstype nfs4 statvers=1.1".
func parseMountstatsDevice(s string) (NFSMount, bool) {
	source, rest, ok1 := strings.Cut(s, " mounted on ")
	// The kernel escapes the path, so it has no space.
	path, fstype, ok2 := strings.Cut(rest, " with fstype ")
	fields := strings.Fields(fstype)
	if !ok1 || !ok2 || len(fields) == 0 || fields[0] != "nfs" && fields[0] != "nfs4" {
		return NFSMount{}, false
	}
	return NFSMount{
		Source: display.Safe(source, maxShownPath), Path: display.Safe(path, maxShownPath), FSType: fields[0],
	}, true
}

// addTransport adds one connection of a mount (nconnect makes several). For TCP and RDMA sends and
// receives follow after port, bind count, connect count, connect time and idle time; UDP has only
// the first two of these.
func (m *NFSMount) addTransport(protocol string, fields []string) {
	first := 5
	if protocol == "udp" {
		first = 2
	}
	if len(fields) < first+2 {
		return
	}
	sends, err1 := strconv.ParseUint(fields[first], 10, 64)
	receives, err2 := strconv.ParseUint(fields[first+1], 10, 64)
	if err1 == nil && err2 == nil {
		m.Sends += sends
		m.Receives += receives
		m.Counted = true
	}
}

// NFSMounts returns the NFS mounts of the node's init or, if they can't be read, of this process.
func (f FS) NFSMounts() ([]NFSMount, error) {
	s, err := f.read("/proc/1/mountstats", largeFile)
	if err != nil {
		s, err = f.read("/proc/self/mountstats", largeFile)
	}
	return ParseNFSMounts(s), err
}
