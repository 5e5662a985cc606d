package logsource

import (
	"slices"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/collector/logs"
)

// maxStreams is how many units of a journal are followed at the same time. A node has some
// hundred, of which few log within the lines that a pattern spans.
const maxStreams = 128

// streams holds the matchers for lines that follow each other: those of a log, or of a unit of a
// journal. It is used by one goroutine at a time.
type streams struct {
	cfg   *Config
	set   *logpattern.Set
	byKey *simplelru.LRU[string, *logpattern.Matcher]
	last  *logpattern.Matcher // of the last requested key
	key   string
}

func newStreams(cfg *Config) streams {
	lru, _ := simplelru.NewLRU[string, *logpattern.Matcher](maxStreams, nil) // it fails only for a size of 0
	return streams{cfg: cfg, byKey: lru}
}

// use makes all streams match the patterns of set from now on.
func (s *streams) use(set *logpattern.Set) {
	if s.set == set {
		return
	}
	s.set, s.last = set, nil
	for _, key := range s.byKey.Keys() { // oldest first, so that they keep their order
		m, _ := s.byKey.Peek(key)
		next := s.newMatcher(key)
		next.Resume(m.Recent())
		s.byKey.Add(key, next)
	}
}

// kernelKey is the key of the kernel's own lines in a journal.
const kernelKey = "\x00" + event.OriginKernel

// newMatcher returns a matcher for the stream's patterns.
func (s *streams) newMatcher(key string) *logpattern.Matcher {
	if s.cfg.hasKernel() && (s.cfg.Plugin != Journald || key == kernelKey) {
		return s.set.NewMatcher(s.cfg.Name, event.KernelLogs)
	}
	return s.set.NewMatcher(s.cfg.Name)
}

// of returns the matcher of the stream that the line belongs to.
func (s *streams) of(line *logs.Line) *logpattern.Matcher {
	key := ""
	if s.cfg.Plugin == Journald {
		if key = line.Unit; key == "" {
			key = "\x00" + line.Origin // writers without a unit, such as the kernel
		}
	}
	return s.get(key)
}

func (s *streams) get(key string) *logpattern.Matcher {
	if s.last != nil && s.key == key {
		return s.last
	}
	m, ok := s.byKey.Get(key)
	if !ok {
		m = s.newMatcher(key)
		s.byKey.Add(key, m)
	}
	s.last, s.key = m, key
	return m
}

// forget resets all streams, so that no pattern matches across this point.
func (s *streams) forget() {
	for _, m := range s.byKey.Values() {
		m.Reset()
	}
}

// window holds the last lines of a stream that patterns may need.
type window struct {
	Key   string `json:"key,omitempty"`
	Lines []byte `json:"lines"`
}

// maxWindows bounds the saved windows, in bytes.
const maxWindows = 256 << 10

// windows returns the windows to save, the most recently used streams first.
func (s *streams) windows() []window {
	var out []window
	size := 0
	for _, key := range slices.Backward(s.byKey.Keys()) {
		m, _ := s.byKey.Peek(key)
		lines := m.Recent()
		if size += len(lines); size > maxWindows {
			break
		}
		if lines != nil {
			out = append(out, window{Key: key, Lines: lines})
		}
	}
	return out
}

// resume restores saved windows.
func (s *streams) resume(windows []window) {
	for _, w := range slices.Backward(windows) {
		s.get(w.Key).Resume(w.Lines)
	}
}
