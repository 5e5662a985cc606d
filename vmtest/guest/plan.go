// Package guest runs inside a test machine, as its first process: it mounts the usual filesystems,
// loads modules, runs one program and reports to the host how it ended. It does not depend on the
// program.
package guest

import (
	"encoding/json"
	"fmt"
	"os"
)

// Paths in the machine.
const (
	InitPath = "/vmrun"       // the first process; tests recognise the machine by this file
	PlanPath = "/vmrun.json"  // the Plan
	Output   = "/dev/ttyS1"   // the program's standard output and error
	Report   = "/dev/ttyS2"   // the Verdict, one line of JSON
	Console  = "/dev/console" // messages of the kernel and errors of this package
)

// The cgroup versions of machines.
const (
	CgroupV1 = "v1" // memory and some other controllers in separate hierarchies
	CgroupV2 = "v2" // one hierarchy
)

// Plan describes what the first process does. The host writes it.
type Plan struct {
	Modules []string `json:"modules,omitempty"` // arguments of modprobe, run before the program starts
	Cgroup  string   `json:"cgroup"`            // CgroupV1 or CgroupV2
	Args    []string `json:"args,omitempty"`    // the program and its arguments; if empty, end at once with 0
	Env     []string `json:"env,omitempty"`
	Dir     string   `json:"dir,omitempty"`
}

// Verdict is how the program ended.
type Verdict struct {
	Exit   int    `json:"exit"`             // its exit code
	Signal int    `json:"signal,omitempty"` // the signal that ended it; Exit is then 0
	Error  string `json:"error,omitempty"`  // set if it could not be started
}

func readPlan() (Plan, error) {
	var p Plan
	raw, err := os.ReadFile(PlanPath)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, fmt.Errorf("%s: %w", PlanPath, err)
	}
	return p, nil
}
