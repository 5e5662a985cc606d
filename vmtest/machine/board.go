package machine

import (
	"os/exec"

	"github.com/kernosis/kernosis/vmtest/kernel"
)

// board is what machines of one architecture differ in.
type board struct {
	qemu, pkg string // the program, and the package that has it
	machine   string
	emulated  string // the CPU without KVM
	console   string // the kernel's, as it names it
	args      string // for its kernel alone
	// ports make ttyS1 the program's output, and ttyS2 the report's, of these chardevs.
	ports []string
}

func boardOf(arch string) board {
	if arch == kernel.ARM64 {
		return board{
			qemu: "qemu-system-aarch64", pkg: "qemu-system-arm", machine: "virt",
			emulated: "cortex-a72", // newer ones sign pointers, which costs much to emulate
			console:  "ttyAMA0",
			// It has one serial port of its own, whose driver is another.
			ports: []string{
				"-chardev", "null,id=unused", "-device", "pci-serial,chardev=unused",
				"-device", "pci-serial,chardev=output", "-device", "pci-serial,chardev=report",
			},
		}
	}
	return board{
		qemu: "qemu-system-x86_64", pkg: "qemu-system-x86", machine: "q35",
		emulated: "max,-cx16", // with cx16, qemu 7.2 sometimes fails in early boot
		console:  "ttyS0",
		// An emulated timer may be late where the host is busy, and the kernel panics: "IO-APIC
		// + timer doesn't work".
		args:  " no_timer_check",
		ports: []string{"-serial", "chardev:output", "-serial", "chardev:report"},
	}
}

func (b board) find() (string, error) {
	path, err := exec.LookPath(b.qemu)
	if err != nil {
		return "", &kernel.SetupError{What: b.qemu + " is not installed", Do: "apt-get install " + b.pkg + ", or make vmtest-setup"}
	}
	return path, nil
}
