package event

// HungTaskData is the payload of [HungTask] and [HungTaskResumed].
type HungTaskData struct {
	BlockedFor Duration `json:"blockedFor"`           // a lower bound: under-read by up to one check interval
	Wait       string   `json:"wait"`                 // io, lock, command (discard, erase, SG_IO: may take long when all is well) or other
	Lock       string   `json:"lock,omitempty"`       // mutex, semaphore, rwsem-read, rwsem-write; empty: not a recorded lock
	LockAddr   uint64   `json:"lockAddr,omitempty"`   // identity of the lock, to tell that several tasks hang on one
	Holder     *Task    `json:"holder,omitempty"`     // who holds the lock
	HolderHint bool     `json:"holderHint,omitempty"` // the kernel keeps only a hint: "possibly"
	Stack      []string `json:"stack,omitempty"`      // innermost first, "symbol+0x1f"
	Detector   string   `json:"detector"`             // khungtaskd or poll
	Exited     bool     `json:"exited,omitempty"`     // HungTaskResumed only: the task is gone
}

// OOMKillData is the payload of [OOMKill]; the event's Task is the victim.
// Sizes are bytes.
type OOMKillData struct {
	Scope       string  `json:"scope"`                 // memcg, global or unknown
	LimitCgroup *Cgroup `json:"limitCgroup,omitempty"` // memcg: whose limit was hit
	Limit       uint64  `json:"limit,omitempty"`       // of LimitCgroup
	Usage       uint64  `json:"usage,omitempty"`       // of LimitCgroup at the kill
	Trigger     *Task   `json:"trigger,omitempty"`     // the task whose allocation failed
	TotalVM     uint64  `json:"totalVM"`
	AnonRSS     uint64  `json:"anonRSS"`
	FileRSS     uint64  `json:"fileRSS"`
	ShmemRSS    uint64  `json:"shmemRSS"`
	Swap        uint64  `json:"swap"`
	PageTables  uint64  `json:"pageTables"`
	Approximate bool    `json:"approximate,omitempty"` // the RSS figures miss per-CPU remainders
	OOMScoreAdj int16   `json:"oomScoreAdj"`
	Along       bool    `json:"along,omitempty"` // killed after another one, for the same want of memory: memory.oom.group
}

// DiskIOData is the payload of [DiskIO].
type DiskIOData struct {
	Op        string `json:"op"`     // read, write, flush, discard, write-zeroes, zone-append, other
	Sector    uint64 `json:"sector"` // 512-byte units, from the start of the device that failed
	Bytes     uint32 `json:"bytes"`
	Error     string `json:"error"`               // errno name: EIO, ENOSPC, ETIMEDOUT …
	Status    string `json:"status,omitempty"`    // blk_status name where the kernel has one: IOERR, MEDIUM, TIMEOUT …
	ReadAhead bool   `json:"readAhead,omitempty"` // speculative: the real read follows
	Bio       bool   `json:"bio,omitempty"`       // from a bio-based device (dm, md, NVMe with several paths, zram)
	Lower     string `json:"lower,omitempty"`     // Bio: name of the device below whose error it is; empty: the volume's own
}

// DiskStallData is the payload of [DiskStalled] and [DiskResumed].
type DiskStallData struct {
	InFlight   uint32   `json:"inFlight"`   // I/Os, as of the latest look
	StalledFor Duration `json:"stalledFor"` // a lower bound: under-read by up to one interval of looks
}

// FSErrorData is the payload of [FSError].
type FSErrorData struct {
	FSType   string `json:"fsType"`
	Function string `json:"function"` // kernel function that found it
	Line     uint32 `json:"line"`
}

// MountData is the payload of [MountReadOnly] and [MountWritable].
type MountData struct {
	FSType string `json:"fsType"`
	Path   string `json:"path"`   // first mount point
	Reason string `json:"reason"` // what told: superblock-ro, emergency-ro, shutdown, error-policy; writable: remounted, unmounted
}

// SockFailData is the payload of [SockFail] and [SockFailRecovered].
type SockFailData struct {
	Target      string   `json:"target"`          // the target's configured name, else address:port
	Verdict     string   `json:"verdict"`         // see the Verdict constants
	Phase       string   `json:"phase"`           // connect or established
	Errno       string   `json:"errno,omitempty"` // errno name seen by the socket
	Duration    Duration `json:"duration"`        // from connect to the failure
	RTT         Duration `json:"rtt,omitempty"`   // smoothed round trip; zero where it was never established
	Received    uint64   `json:"received,omitempty"`
	Retransmits uint32   `json:"retransmits"`
	Evidence    []string `json:"evidence,omitempty"` // facts behind the verdict, bounded
	Excluded    []string `json:"excluded,omitempty"` // causes ruled out, with why, bounded
	QueueLen    uint32   `json:"queueLen,omitempty"` // accept queue of the listener, where it was read
	QueueMax    uint32   `json:"queueMax,omitempty"`
}

// Verdicts of a failed connection.
const (
	VerdictRefused         = "refused"           // reset in answer to the SYN: nothing listens
	VerdictTimeout         = "syn-unanswered"    // blackhole: SYN sent, nothing came back
	VerdictAcceptQueueFull = "accept-queue-full" // the listener's accept queue overflowed
	VerdictReset           = "reset"             // reset after the connection stood
	VerdictSilent          = "connected-silent"  // accepted, request acknowledged, no byte back
	VerdictNotAccepted     = "not-accepted"      // connected, but still in the accept queue
	VerdictNoRoute         = "no-route"          // never sent: no route, blackhole or prohibit route
	VerdictPortsExhausted  = "ports-exhausted"   // never sent: no free local port
	VerdictUnreachable     = "icmp-unreachable"  // an ICMP error came back
	VerdictLocalDrop       = "local-drop"        // this node dropped the packet (firewall, policy)
	VerdictNeighborFailed  = "neighbor-failed"   // the next hop's link address does not resolve
)

// LostData is the payload of [Lost].
type LostData struct {
	Stem   string `json:"stem"`
	Count  uint64 `json:"count"`  // 0: nobody knows how many, and possibly none
	Reason string `json:"reason"` // ring-full, recursion, malformed, foreign-wire; of a log, see logs.Reason, or rate-limit
}

// SourceData is the payload of [Source].
type SourceData struct {
	Stem string `json:"stem"`
	// Kernel: a log that has the kernel's lines, see KernelLogs.
	Kernel bool   `json:"kernel,omitempty"`
	Up     bool   `json:"up"`
	Reason string `json:"reason,omitempty"`
}

// CanaryData is the payload of [Canary].
type CanaryData struct {
	Stem  string `json:"stem"`
	Nonce uint64 `json:"nonce"`
}
