package logpattern_test

import "github.com/kernosis/kernosis/collector/logpattern"

// kernelMonitor is node-problem-detector's config/kernel-monitor.json.
func kernelMonitor() []logpattern.Pattern {
	rules := [][2]string{
		{"OOMKilling", `Killed process \d+ (.+) total-vm:\d+kB, anon-rss:\d+kB, file-rss:\d+kB.*`},
		{"TaskHung", `task [\S ]+:\w+ blocked for more than \w+ seconds\.`},
		{"UnregisterNetDevice", `unregister_netdevice: waiting for \w+ to become free. Usage count = \d+`},
		{"KernelOops", `BUG: unable to handle kernel NULL pointer dereference at .*`},
		{"KernelOops-2", `divide error: 0000 \[#\d+\] SMP`},
		{"Ext4Error", `EXT4-fs error .*`},
		{"Ext4Warning", `EXT4-fs warning .*`},
		{"IOError", `Buffer I/O error .*`},
		{"MemoryReadError", `CE memory read error .*`},
		{"CperHardwareErrorCorrected", `.*\[Hardware Error\]: event severity: corrected$`},
		{"CperHardwareErrorRecoverable", `.*\[Hardware Error\]: event severity: recoverable$`},
		{"XfsHasShutdown", `XFS .* Shutting down filesystem.?`},
		{"CperHardwareErrorFatal", `.*\[Hardware Error\]: event severity: fatal$`},
		{"DockerHung", `task docker:\w+ blocked for more than \w+ seconds\.`},
	}
	patterns := make([]logpattern.Pattern, len(rules))
	for i, r := range rules {
		patterns[i] = logpattern.Pattern{Name: r[0], Expr: r[1], AnchorEnd: true}
	}
	return patterns
}
