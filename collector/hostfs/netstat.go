package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// ListenStats counts what happened at full accept queues of one network namespace since its
// creation.
type ListenStats struct {
	Overflows uint64 // ListenOverflows: the accept queue was full
	Drops     uint64 // ListenDrops: a listener dropped a SYN or an ACK, for any reason
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

// NetCounters reads the IPv4, TCP, UDP, ICMP and IPv6 counters that /proc has for the network
// namespace of a process, by group and name ("TcpExt.ListenDrops", "Ip6.InDiscards"). The set
// depends on the kernel. Negative gauges are omitted.
func (f FS) NetCounters(pid int) (map[string]uint64, error) {
	out := map[string]uint64{}
	for _, file := range []string{"net/netstat", "net/snmp"} {
		s, err := f.read(procPath(pid, file), maxNetstat)
		if err != nil {
			return nil, err
		}
		if err := parseNetCounters(s, out); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	// Without IPv6 the file does not exist.
	s, err := f.read(procPath(pid, "net/snmp6"), maxNetstat)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	return out, parseSNMP6(s, out)
}

func parseNetCounters(s string, into map[string]uint64) error {
	return netstatGroups(s, func(group string, keys, values []string) error {
		for i, key := range keys {
			n, err := strconv.ParseInt(values[i], 10, 64)
			if err == nil && n < 0 {
				continue // Tcp.MaxConn: no limit
			}
			u, err := strconv.ParseUint(values[i], 10, 64)
			if err != nil {
				return fmt.Errorf("%s.%s: %w", group, key, err)
			}
			into[group+"."+key] = u
		}
		return nil
	})
}

// parseSNMP6 parses lines like "Ip6InDiscards   12".
func parseSNMP6(s string, into map[string]uint64) error {
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) != 2 {
			return fmt.Errorf("net/snmp6: %w", errSyntax)
		}
		group, name, ok := strings.Cut(f[0], "6")
		if !ok || name == "" {
			continue
		}
		n, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			return fmt.Errorf("net/snmp6: %s: %w", f[0], err)
		}
		into[group+"6."+name] = n
	}
	return nil
}

// netstatGroups calls fn for each pair of lines "Group: Name…" and "Group: value…", the format of
// /proc/net/netstat and /proc/net/snmp.
func netstatGroups(s string, fn func(group string, keys, values []string) error) error {
	var group string
	var keys []string
	for line := range strings.Lines(s) {
		name, rest, ok := strings.Cut(line, ":")
		switch fields := strings.Fields(rest); {
		case !ok:
			return fmt.Errorf("netstat: %w", errSyntax)
		case keys == nil:
			group, keys = name, fields
		case name != group || len(fields) != len(keys):
			return fmt.Errorf("netstat: %s: %w", group, errSyntax)
		default:
			if err := fn(group, keys, fields); err != nil {
				return err
			}
			keys = nil
		}
	}
	return nil
}

// parseNetstat returns counters of one group from the text of /proc/net/netstat or /proc/net/snmp.
func parseNetstat(s, group string, names ...string) ([]uint64, error) {
	var keys, nums []string
	if err := netstatGroups(s, func(g string, k, v []string) error {
		if g == group {
			keys, nums = k, v
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if len(keys) == 0 {
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
