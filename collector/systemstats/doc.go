// Package systemstats exports statistics of the node (load, CPU time, memory, disks, network
// interfaces, uptime, OS features) as metrics, with the names and labels of
// node-problem-detector's system-stats-monitor.
//
// A [Collector] reads /proc and /sys at an interval and gives Prometheus the latest values: a
// scrape reads nothing, so it can't be blocked by a file system that hangs. It runs no programs:
// what node-problem-detector gets from lsblk is in /sys/block.
//
// The statistics are of the node, as far as it is visible: mounts and interfaces are those of
// process 1 in the given /proc.
//
// # Differences from the original
//
//   - system/cpu_stat, system/interrupts_total, system/processes_total and all of net/ are
//     the kernel's counters. The original adds the whole counter to its metric at each
//     interval, so its rates are meaningless.
//   - cpu/usage_time is in ticks of 1/100 s, as in the original, whose documentation says
//     seconds. cpu/runnable_task_count is the one-minute load, as in the original.
//   - Devices have their kernel names (dm-0), even if lsblk uses others.
//   - UnifiedCgroupHierarchy is also 1 if that is the default and not on the kernel's command
//     line.
//   - Only chosen metrics are read; the original requires all of net/, and reads
//     disk/percent_used only together with disk/bytes_used.
package systemstats
