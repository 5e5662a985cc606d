package hostfs

import (
	"os"
	"strconv"
)

// ThreadStates returns the states of a process' threads from /proc, at most limit of them, the main
// thread first.
func (f FS) ThreadStates(pid, limit int) ([]Stat, error) {
	dir, err := os.Open(f.Path(procPath(pid, "task")))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	tids, err := dir.Readdirnames(limit)
	if err != nil {
		return nil, err
	}
	out := make([]Stat, 0, len(tids))
	for _, tid := range tids {
		if _, err := strconv.ParseUint(tid, 10, 31); err != nil {
			continue
		}
		s, err := f.read(procPath(pid, "task/"+tid+"/stat"), smallFile)
		if err != nil {
			continue // it has ended
		}
		if st, err := ParseStat(s); err == nil {
			out = append(out, st)
		}
	}
	return out, nil
}
