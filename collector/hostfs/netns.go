package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// NetNamespace is a network namespace and a process in it.
type NetNamespace struct {
	Inode uint32
	PID   int // the lowest
}

// parseNetNS parses the target of the link /proc/PID/ns/net, "net:[4026531840]".
func parseNetNS(link string) (uint32, error) {
	s, ok1 := strings.CutPrefix(link, "net:[")
	s, ok2 := strings.CutSuffix(s, "]")
	n, err := strconv.ParseUint(s, 10, 32)
	if !ok1 || !ok2 || err != nil {
		return 0, fmt.Errorf("ns/net: %w", errSyntax)
	}
	return uint32(n), nil
}

// NetNS returns the inode of a process' network namespace, its identity while it exists.
func (f FS) NetNS(pid int) (uint32, error) {
	link, err := os.Readlink(f.Path(procPath(pid, "ns/net")))
	if err != nil {
		return 0, err
	}
	return parseNetNS(link)
}

// NetNamespaces returns the network namespaces that have processes, ordered by their lowest pid, at
// most limit of them. Processes that end meanwhile or can't be read are skipped.
func (f FS) NetNamespaces(limit int) ([]NetNamespace, error) {
	pids, err := f.PIDs()
	if err != nil {
		return nil, err
	}
	seen := make(map[uint32]bool)
	var out []NetNamespace
	for _, pid := range pids {
		if len(out) >= limit {
			break
		}
		if inode, err := f.NetNS(pid); err == nil && !seen[inode] {
			seen[inode] = true
			out = append(out, NetNamespace{Inode: inode, PID: pid})
		}
	}
	return out, nil
}

// maxNetstat is several times the size of the file on 6.18 (6 KiB).
const maxNetstat = 64 << 10

// ListenOverflows returns how often an accept queue was full in the network namespace of a process,
// since the namespace was created.
func (f FS) ListenOverflows(pid int) (uint64, error) {
	return parsed(f, procPath(pid, "net/netstat"), maxNetstat, parseListenOverflows)
}

func parseListenOverflows(s string) (n uint64, err error) {
	const group, name = "TcpExt", "ListenOverflows"
	found := false
	err = netstatGroups(s, func(g string, keys, values []string) (err error) {
		if i := slices.Index(keys, name); g == group && i >= 0 {
			found = true
			n, err = strconv.ParseUint(values[i], 10, 64)
		}
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("no %s: %w", name, errSyntax)
	}
	if err != nil {
		return 0, fmt.Errorf("netstat: %w", err)
	}
	return n, nil
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
	// The file does not exist on a kernel without IPv6.
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
			return errSyntax
		case keys == nil:
			group, keys = name, fields
		case name != group || len(fields) != len(keys):
			return fmt.Errorf("%s: %w", group, errSyntax)
		default:
			if err := fn(group, keys, fields); err != nil {
				return err
			}
			keys = nil
		}
	}
	return nil
}
