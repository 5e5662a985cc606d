// Package catalog lists the built-in operations.
package catalog

import (
	"cmp"
	"slices"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/block"
	"github.com/kernosis/kernosis/diagnose/operation/disk"
	"github.com/kernosis/kernosis/diagnose/operation/memory"
	"github.com/kernosis/kernosis/diagnose/operation/network"
	"github.com/kernosis/kernosis/diagnose/operation/node"
	"github.com/kernosis/kernosis/diagnose/operation/pod"
	"github.com/kernosis/kernosis/diagnose/operation/process"
	"github.com/kernosis/kernosis/diagnose/operation/remote"
)

// All returns the built-in operations, sorted by name.
func All(h operation.Host) []operation.Builtin {
	all := []operation.Builtin{
		block.BlockedStacks(h),
		memory.CgroupMemory(h),
		network.CheckAcceptQueueFull(h),
		network.CheckAppSilent(h),
		network.CheckCPUThrottled(h),
		network.CheckConntrackFull(h),
		disk.CheckDiskFailing(h),
		block.CheckDiskStalled(h),
		disk.CheckFilesystemErrors(h),
		block.CheckFilesystemFrozen(h),
		disk.CheckFilesystemReadonly(h),
		memory.CheckLimitTooLow(h),
		network.CheckLinkDown(h),
		block.CheckLockHolder(h),
		memory.CheckMemoryLeak(h),
		block.CheckNFSHang(h),
		network.CheckNeighbourFailed(h),
		network.CheckNoListener(h),
		network.CheckNoRoute(h),
		memory.CheckNodeOvercommitted(h),
		network.CheckProbeFails(h), network.CheckProbeRecovers(h),
		node.CheckRuntimeUnhealthy(h),
		network.CheckSYNDropped(h),
		node.CheckUnitFailed(h),
		pod.ContainerDetail(h),
		remote.DNSLookup(h),
		disk.DiskErrors(h),
		disk.DiskIdentity(h),
		node.KernelFacts(h),
		node.KmsgTail(h),
		network.Links(h),
		disk.Mounts(h),
		network.Neighbours(h),
		network.NetworkDrops(h),
		process.OpenFiles(h),
		network.PacketCapture(h),
		pod.PodDetail(h),
		pod.PodList(h),
		remote.Pprof(h),
		process.ProcessDetail(h),
		process.ProcessTree(h),
		network.ReProbe(h),
		node.RestartUnit(h),
		network.Routes(h),
		node.RuntimeHealth(h),
		disk.Smart(h),
		network.Sockets(h),
		node.SystemdUnit(h),
		remote.Webhook(h),
	}
	all = slices.Concat(all, node.ByController(), pod.ByController())
	slices.SortFunc(all, func(a, b operation.Builtin) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
