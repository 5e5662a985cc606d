package hostfs

import (
	"fmt"
	"strconv"
	"strings"
)

// ListenStats counts, of one network namespace since it was made, what happened
// at full accept queues.
type ListenStats struct {
	Overflows uint64 // ListenOverflows: the accept queue was full
	Drops     uint64 // ListenDrops: a SYN or an ACK dropped by a listener, for any reason
}

// maxNetstat is several times the size of the file on 6.18 (6 KiB).
const maxNetstat = 64 << 10

// ListenStats reads the counters of the network namespace of a process.
func (f FS) ListenStats(pid int) (ListenStats, error) {
	s, err := f.read(procPath(pid, "net/netstat"), maxNetstat)
	if err != nil {
		return ListenStats{}, err
	}
	m, err := parseNetstat(s, "TcpExt", "ListenOverflows", "ListenDrops")
	if err != nil {
		return ListenStats{}, err
	}
	return ListenStats{Overflows: m[0], Drops: m[1]}, nil
}

// parseNetstat reads counters of one group from the text of /proc/net/netstat
// or /proc/net/snmp: pairs of lines "Group: Name…" and "Group: value…".
func parseNetstat(s, group string, names ...string) ([]uint64, error) {
	var header, values string
	for line := range strings.Lines(s) {
		rest, ok := strings.CutPrefix(line, group+":")
		if !ok {
			continue
		}
		if header == "" {
			header = rest
			continue
		}
		values = rest
		break
	}
	keys, nums := strings.Fields(header), strings.Fields(values)
	if len(keys) == 0 || len(keys) != len(nums) {
		return nil, fmt.Errorf("netstat: %s: %w", group, errSyntax)
	}
	out := make([]uint64, len(names))
	for i, name := range names {
		found := false
		for j, key := range keys {
			if key != name {
				continue
			}
			n, err := strconv.ParseUint(nums[j], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("netstat: %s: %w", name, err)
			}
			out[i], found = n, true
			break
		}
		if !found {
			return nil, fmt.Errorf("netstat: no %s: %w", name, errSyntax)
		}
	}
	return out, nil
}
