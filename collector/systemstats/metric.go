package systemstats

import (
	"strings"
	"unicode"
)

// metric is a metric that can be reported.
type metric struct {
	id      string // in the configuration; the part before "/" is not the component
	counter bool   // else a gauge
	help    string
	labels  []string
}

// table lists the metrics, with node-problem-detector's names of labels.
func table() []metric {
	device, directed := []string{"device_name"}, []string{"device_name", "direction"}
	mounted, state := []string{"device_name", "fs_type", "mount_option", "state"}, []string{"state"}
	m := []metric{
		{"cpu/runnable_task_count", false, "The average number of runnable tasks in the run-queue during the last minute.", nil},
		{"cpu/usage_time", true, "CPU time by state, in ticks of 1/100 second.", state},
		{"cpu/load_1m", false, "CPU average load (1m).", nil},
		{"cpu/load_5m", false, "CPU average load (5m).", nil},
		{"cpu/load_15m", false, "CPU average load (15m).", nil},
		{"system/processes_total", true, "Number of forks since boot.", nil},
		{"system/procs_running", false, "Number of processes currently running.", nil},
		{"system/procs_blocked", false, "Number of processes currently blocked.", nil},
		{"system/interrupts_total", true, "Total number of interrupts serviced.", nil},
		{"system/cpu_stat", true, "Time each CPU spent in each stage, in seconds.", []string{"cpu", "stage"}},
		{"disk/io_time", true, "The IO time spent on the disk, in ms.", device},
		{"disk/weighted_io", true, "The weighted IO on the disk, in ms.", device},
		{"disk/avg_queue_len", false, "The average queue length on the disk during the last interval.", device},
		{"disk/operation_count", true, "Disk operations count.", directed},
		{"disk/merged_operation_count", true, "Disk merged operations count.", directed},
		{"disk/operation_bytes_count", true, "Bytes transferred in disk operations.", directed},
		{"disk/operation_time", true, "Time spent in disk operations, in ms.", directed},
		{"disk/bytes_used", false, "Disk bytes by state, in bytes.", mounted},
		{"disk/percent_used", false, "Disk utilization percentage by state.", mounted},
		{"host/uptime", false, "The uptime of the operating system, in seconds.", []string{"kernel_version", "os_version"}},
		{"memory/bytes_used", false, "Memory usage by each memory state, in bytes. Summing values of all states yields the total memory on the node.", state},
		{"memory/percent_used", false, "Memory usage in percentage of total memory.", state},
		{"memory/anonymous_used", false, "Anonymous memory usage, in bytes.", state},
		{"memory/page_cache_used", false, "Page cache memory usage, in bytes.", state},
		{"memory/unevictable_used", false, "Unevictable memory usage, in bytes.", nil},
		{"memory/dirty_used", false, "Dirty pages usage, in bytes: waiting to be written back (dirty), being written back (writeback).", state},
		{"system/os_feature", false, "OS features; 1 if the feature is enabled and 0 if it is not.", []string{"os_feature", "value"}},
	}
	for _, n := range netTable() {
		m = append(m, metric{"net/" + n.id, true, n.help, []string{"interface_name"}})
	}
	return m
}

// maxName is the longest name, as in node-problem-detector's exporter.
const maxName = 100

// metricName converts a display name to a Prometheus name, as node-problem-detector's exporter
// does: "cpu/load_1m" becomes cpu_load_1m.
func metricName(display string) string {
	if len(display) > maxName {
		display = display[:maxName]
	}
	name := strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '_'
	}, display)
	switch {
	case name == "":
	case unicode.IsDigit(rune(name[0])):
		name = "key_" + name
	case name[0] == '_':
		name = "key" + name
	}
	return name
}
