package machine

import "github.com/kernosis/kernosis/vmtest/kernel"

// board is what differs between machines by architecture.
type board struct {
	qemu     string // the program
	machine  string
	emulated string // the CPU model without KVM
	console  string // device name of the kernel's console
	args     string // kernel arguments of this architecture
	// ports connects ttyS1 to the chardev of the program's output, and ttyS2 to that of the report.
	ports []string
}

func boardOf(arch string) board {
	if arch == kernel.ARM64 {
		return board{
			qemu: "qemu-system-aarch64", machine: "virt",
			emulated: "cortex-a72", // newer ones use pointer authentication, which is slow to emulate
			console:  "ttyAMA0",
			// The machine's built-in serial port uses another driver.
			ports: []string{
				"-chardev", "null,id=unused", "-device", "pci-serial,chardev=unused",
				"-device", "pci-serial,chardev=output", "-device", "pci-serial,chardev=report",
			},
		}
	}
	return board{
		qemu: "qemu-system-x86_64", machine: "q35",
		emulated: "max,-cx16", // with cx16, qemu 7.2 sometimes fails in early boot
		console:  "ttyS0",
		// An emulated timer may be late where the host is busy, and the kernel panics: "IO-APIC
		// + timer doesn't work".
		args:  " no_timer_check",
		ports: []string{"-serial", "chardev:output", "-serial", "chardev:report"},
	}
}
