package operation

import (
	"cmp"
	"slices"
)

// All returns the built-in operations, sorted by name.
func All(h Host) []Builtin {
	all := []Builtin{
		AnnotateNode(h),
		BlockedStacks(h),
		CgroupMemory(h),
		CheckAcceptQueueFull(h),
		CheckAppSilent(h),
		CheckCPUThrottled(h),
		CheckConntrackFull(h),
		CheckDiskFailing(h),
		CheckDiskStalled(h),
		CheckFilesystemErrors(h),
		CheckFilesystemFrozen(h),
		CheckFilesystemReadonly(h),
		CheckLimitTooLow(h),
		CheckLinkDown(h),
		CheckLockHolder(h),
		CheckMemoryLeak(h),
		CheckNFSHang(h),
		CheckNeighbourFailed(h),
		CheckNoListener(h),
		CheckNoRoute(h),
		CheckNodeOvercommitted(h),
		CheckProbeFails(h), CheckProbeRecovers(h),
		CheckRuntimeUnhealthy(h),
		CheckSYNDropped(h),
		CheckUnitFailed(h),
		ContainerDetail(h),
		Cordon(h),
		DNSLookup(h),
		DeletePod(h),
		DiskErrors(h),
		DiskIdentity(h),
		Drain(h),
		EvictPod(h),
		KernelFacts(h),
		KmsgTail(h),
		LabelNode(h),
		Links(h),
		Mounts(h),
		Neighbours(h),
		NetworkDrops(h),
		OpenFiles(h),
		PacketCapture(h),
		PodDetail(h),
		PodList(h),
		Pprof(h),
		ProcessDetail(h),
		ProcessTree(h),
		ReProbe(h),
		RestartUnit(h),
		Routes(h),
		RuntimeHealth(h),
		Smart(h),
		Sockets(h),
		SystemdUnit(h),
		Taint(h),
		UnannotateNode(h),
		Uncordon(h),
		UnlabelNode(h),
		Untaint(h),
		Webhook(h),
	}
	slices.SortFunc(all, func(a, b Builtin) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Lookup returns the built-in of a name out of those of [All].
func Lookup(all []Builtin, name string) (*Builtin, bool) {
	i, ok := slices.BinarySearchFunc(all, name, func(b Builtin, name string) int { return cmp.Compare(b.Name, name) })
	if !ok {
		return nil, false
	}
	return &all[i], true
}
