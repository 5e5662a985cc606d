package catalog

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/block"
	"github.com/kernosis/kernosis/diagnose/operation/disk"
	"github.com/kernosis/kernosis/diagnose/operation/memory"
	"github.com/kernosis/kernosis/diagnose/operation/node"
	"github.com/kernosis/kernosis/diagnose/operation/process"
	"github.com/kernosis/kernosis/vmtest/operationtest"
)

// nodeBuiltins returns the built-ins about the node itself.
func nodeBuiltins(h operation.Host) []operation.Builtin {
	return []operation.Builtin{
		block.BlockedStacks(h), memory.CgroupMemory(h), disk.CheckDiskFailing(h), block.CheckDiskStalled(h), disk.CheckFilesystemErrors(h), block.CheckFilesystemFrozen(h),
		disk.CheckFilesystemReadonly(h), memory.CheckLimitTooLow(h), block.CheckLockHolder(h), memory.CheckMemoryLeak(h), block.CheckNFSHang(h), memory.CheckNodeOvercommitted(h),
		disk.DiskErrors(h), disk.DiskIdentity(h), node.KernelFacts(h), node.KmsgTail(h), disk.Mounts(h), process.OpenFiles(h), process.ProcessDetail(h), process.ProcessTree(h), disk.Smart(h),
	}
}

// Every run ends with its context, whatever it inspects.
func TestRunsEndWithTheirContext(t *testing.T) {
	errOver := errors.New("the time is over")
	for _, b := range nodeBuiltins(operationtest.RealHost()) {
		values, err := b.Fill(map[string]string{"pid": strconv.Itoa(os.Getpid()), "window": "1m", "mountPoint": "/"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errOver)
		began := time.Now()
		_, err = b.Run(ctx, &operation.Call{Parameters: values, Artifacts: &operationtest.Artifacts{}})
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %s: %v", b.Name, took, err)
		}
		cancel()
		if values["window"] == "1m" && !errors.Is(err, errOver) {
			if no, ok := errors.AsType[*operation.Refuted](err); !ok || no.Reason != "NoMemoryLimit" && no.Reason != "NoNFSMount" {
				t.Errorf("%s: %v", b.Name, err)
			}
		}
	}
}

// On an empty node, a run reports what is missing and does not panic.
func TestRunsOnAnEmptyNode(t *testing.T) {
	h := operationtest.HostOf(t, map[string]string{"/proc/version": "", "/sys/block/x": ""})
	for _, b := range nodeBuiltins(h) {
		out, _, err := operationtest.Perform(t, b, map[string]string{"pid": "1", "device": "sda"})
		t.Logf("%s: %v %v", b.Name, out.Results, err)
		if err == nil && b.Effect == operation.Check {
			t.Errorf("%s succeeds: %+v", b.Name, out)
		}
	}
}
