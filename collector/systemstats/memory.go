package systemstats

import "errors"

// memory reads /proc/meminfo.
func (c *Collector) memory(s *sample) error {
	m, err := c.fs.Meminfo()
	if err != nil {
		return err
	}
	add := func(id string, kib *uint64, labels ...string) {
		if kib != nil {
			s.count(id, *kib*1024, labels...)
		}
	}
	add("memory/bytes_used", m.MemFree, "free")
	add("memory/bytes_used", m.Buffers, "buffered")
	add("memory/bytes_used", m.Cached, "cached")
	add("memory/bytes_used", m.Slab, "slab")
	add("memory/dirty_used", m.Dirty, "dirty")
	add("memory/dirty_used", m.Writeback, "writeback")
	add("memory/anonymous_used", m.ActiveAnon, "active")
	add("memory/anonymous_used", m.InactiveAnon, "inactive")
	add("memory/page_cache_used", m.ActiveFile, "active")
	add("memory/page_cache_used", m.InactiveFile, "inactive")
	add("memory/unevictable_used", m.Unevictable)
	if m.MemTotal == nil || m.MemFree == nil || m.Buffers == nil || m.Cached == nil || m.Slab == nil || *m.MemTotal == 0 {
		return errors.New("meminfo: MemTotal, MemFree, Buffers, Cached or Slab is missing")
	}
	// The fields were not read at the same moment: the difference may be negative.
	rest := *m.MemFree + *m.Buffers + *m.Cached + *m.Slab
	used := *m.MemTotal - min(*m.MemTotal, rest)
	add("memory/bytes_used", &used, "used")
	s.add("memory/percent_used", float64(used)/float64(*m.MemTotal)*100, "used")
	return nil
}
