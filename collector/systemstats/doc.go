// Package systemstats gives figures of the node (load, CPU time, memory, disks,
// network interfaces, uptime, features of its system) as metrics, with the names
// and labels of node-problem-detector's system-stats-monitor.
//
// A [Collector] reads /proc and /sys at an interval and gives Prometheus what it
// has read last: a scrape reads nothing, and a file system that hangs holds up none.
// No program is run: what node-problem-detector asks lsblk for is in /sys/block.
//
// The figures are of the node as far as it can be seen: mounts and interfaces are
// those of process 1 below the /proc given.
//
// # Differences from the original
//
//   - system/cpu_stat, system/interrupts_total, system/processes_total and all of
//     net/ are the kernel's counters. The original adds the whole counter to its
//     metric at each interval, so that its rates mean nothing.
//   - cpu/usage_time is in ticks of 1/100 s, as in the original, whose text says
//     seconds. cpu/runnable_task_count is the load of a minute, as there.
//   - Devices have their kernel names (dm-0), also those that lsblk calls by others.
//   - UnifiedCgroupHierarchy is 1 also where that is the default and not on the
//     kernel's command line.
//   - A metric that is not chosen is not read; the original needs all of net/, and
//     reads disk/percent_used only together with disk/bytes_used.
package systemstats
