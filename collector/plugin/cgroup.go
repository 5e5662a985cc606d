package plugin

import (
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/process"
)

// groupPrefix is the prefix of the control groups created here.
const groupPrefix = "kernosis-check-"

// groupDir returns the directory of a set's control groups.
func groupDir(parent, set string) string {
	name := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r == '-' {
			return r
		}
		return '_'
	}, set)
	return filepath.Join(parent, groupPrefix+name[:min(len(name), 100)])
}

// openGroups creates a control group for each of n checks.
func openGroups(dir string, n, maximum int, log *slog.Logger) (*process.Groups, []*process.Group, error) {
	groups, err := process.OpenGroups(dir, process.Limits{Processes: maximum}, log)
	if err != nil {
		return nil, nil, err
	}
	all := make([]*process.Group, 0, n)
	for i := range n {
		g, err := groups.Make(strconv.Itoa(i))
		if err != nil {
			groups.Close()
			return nil, nil, err
		}
		all = append(all, g)
	}
	return groups, all, nil
}
