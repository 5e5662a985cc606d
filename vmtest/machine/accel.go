package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/kernosis/kernosis/vmtest/kernel"
)

// Accel is the accelerator that executes the machine's code.
type Accel string

// The accelerators.
const (
	KVM Accel = "kvm" // the host's CPU
	TCG Accel = "tcg" // emulation
)

func (a Accel) args(b board) []string {
	if a == KVM {
		return []string{"-accel", "kvm", "-cpu", "host"}
	}
	return []string{
		// One thread for all CPUs: kernels patch their own code while another CPU executes it,
		// which QEMU does not emulate correctly with a thread per CPU (a 6.12 guest died of a stray
		// int3). It costs 10 %, and leaves the host's other CPUs to other machines.
		"-accel", "tcg,thread=single",
		"-cpu", b.emulated,
	}
}

// tryKVM is how long a machine may take to boot and power off under KVM; where KVM works, this
// takes a second.
const tryKVM = 20 * time.Second

// FindAccel returns KVM if it works. It boots a machine to find out, because a device node proves
// nothing in a container or a nested machine. The result is cached in cacheDir until the host
// reboots.
func FindAccel(ctx context.Context, s Spec, cacheDir string) (Accel, error) {
	if s.Kernel.Arch() != runtime.GOARCH {
		return TCG, nil
	}
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return TCG, nil //nolint:nilerr // a host without KVM is a host to emulate on
	}
	_ = kvm.Close()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	known := accelAnswer{Boot: strings.TrimSpace(string(boot))}
	path := filepath.Join(cacheDir, "accel.json")
	var kept accelAnswer
	if raw, err := os.ReadFile(path); err == nil && json.Unmarshal(raw, &kept) == nil && kept.Boot == known.Boot && (kept.Accel == KVM || kept.Accel == TCG) {
		return kept.Accel, nil
	}
	s.Accel, s.Args, s.Timeout, s.Output = KVM, nil, tryKVM, io.Discard
	s.Config.QEMU = nil
	out, err := s.Run(ctx)
	if setup := (*kernel.SetupError)(nil); errors.As(err, &setup) || ctx.Err() != nil {
		return "", err
	}
	known.Accel = TCG
	if err == nil && out.Ending == Finished && out.Verdict == (Verdict{}) {
		known.Accel = KVM
	}
	raw, err := json.Marshal(known)
	if err == nil {
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("keep what works: %w", err)
	}
	return known.Accel, nil
}

type accelAnswer struct {
	Boot  string `json:"boot"`
	Accel Accel  `json:"accel"`
}
