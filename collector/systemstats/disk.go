package systemstats

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs/blockdevice"

	"github.com/kernosis/kernosis/collector/display"
)

// queue is the state for computing the average queue length of a device.
type queue struct {
	weighted uint64 // ms
	at       time.Time
}

// sector is the unit of /proc/diskstats, independent of the device's own.
const sector = 512

// disk reads the counters of devices and the usage of file systems.
func (c *Collector) disk(s *sample) error {
	var errs []error
	mounts, err := c.mounts()
	if err != nil {
		errs = append(errs, err)
	}
	if c.set.any([]string{"disk/io_", "disk/weighted", "disk/avg", "disk/operation", "disk/merged"}) {
		errs = append(errs, c.counters(s, mounts))
	}
	if c.set.any([]string{"disk/bytes_used", "disk/percent_used"}) {
		errs = append(errs, c.usage(s, mounts))
	}
	return errors.Join(errs...)
}

// counters reads /proc/diskstats.
func (c *Collector) counters(s *sample, mounts []mount) error {
	stats, err := c.block.ProcDiskstats()
	if err != nil {
		return err
	}
	now := time.Now()
	wanted, err := c.wanted(mounts)
	stats = slices.DeleteFunc(stats, func(d blockdevice.Diskstats) bool { return wanted != nil && !wanted[d.DeviceName] })
	present := map[string]queue{}
	for _, d := range stats[:c.bounded("disk", len(stats))] {
		name := display.Safe(d.DeviceName, maxLabel)
		s.count("disk/io_time", d.IOsTotalTicks, name)
		s.count("disk/weighted_io", d.WeightedIOTicks, name)
		last, known := c.queues[name]
		present[name] = queue{weighted: d.WeightedIOTicks, at: now}
		if elapsed := now.Sub(last.at); known && elapsed > 0 {
			// A device that reappeared under the same name counts from 0.
			passed := d.WeightedIOTicks - min(last.weighted, d.WeightedIOTicks)
			s.add("disk/avg_queue_len", float64(passed)/(elapsed.Seconds()*1000), name)
		}
		for _, way := range []struct {
			name                  string
			ops, merged, size, ms uint64
		}{
			{"read", d.ReadIOs, d.ReadMerges, d.ReadSectors, d.ReadTicks},
			{"write", d.WriteIOs, d.WriteMerges, d.WriteSectors, d.WriteTicks},
		} {
			s.count("disk/operation_count", way.ops, name, way.name)
			s.count("disk/merged_operation_count", way.merged, name, way.name)
			s.count("disk/operation_bytes_count", way.size*sector, name, way.name)
			s.count("disk/operation_time", way.ms, name, way.name)
		}
	}
	c.queues = present
	return err
}

// wanted returns the devices to report; nil: all.
func (c *Collector) wanted(mounts []mount) (map[string]bool, error) {
	if !c.set.IncludeRootBlk && !c.set.IncludeAllAttachedBlk {
		return nil, nil
	}
	wanted := map[string]bool{}
	var err error
	if c.set.IncludeRootBlk {
		wanted, err = c.wholeDisks()
	}
	if c.set.IncludeAllAttachedBlk {
		for _, m := range mounts {
			wanted[m.device] = true
		}
	}
	return wanted, err
}

// wholeDisks returns the devices that "lsblk --nodeps" lists: no partitions and RAM disks. It omits all
// devices of size 0, lsblk only loop devices: a node has dozens of others (nbd, zram).
func (c *Collector) wholeDisks() (map[string]bool, error) {
	entries, err := os.ReadDir(c.set.sys("block"))
	disks := map[string]bool{}
	for _, e := range entries {
		dir := c.set.sys(filepath.Join("block", e.Name()))
		if size := readLine(filepath.Join(dir, "size")); size == "0" || size == "" {
			continue
		}
		if strings.HasPrefix(readLine(filepath.Join(dir, "dev")), ramDisk) {
			continue
		}
		disks[e.Name()] = true
	}
	return disks, err
}

// ramDisk is the major number of RAM disks (Documentation/admin-guide/devices.txt).
const ramDisk = "1:"

// readLine returns the only line of a file; "" if it can't be read.
func readLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// kernelName returns the kernel's name of a device, or "" if there is none: the device numbers of
// btrfs and overlay don't belong to a device.
func (c *Collector) kernelName(major, minor uint32) string {
	target, err := os.Readlink(c.set.sys(fmt.Sprintf("dev/block/%d:%d", major, minor)))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}
