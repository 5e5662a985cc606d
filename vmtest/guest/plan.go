// Package guest is the inside of a test machine: its first process, which mounts
// what a Linux system has, loads modules, runs one program and reports to the host
// how it ended. It knows nothing of what it runs.
package guest

import (
	"encoding/json"
	"fmt"
	"os"
)

// Where things are in the machine.
const (
	InitPath = "/vmrun"       // the first process: its name shows tests where they run
	PlanPath = "/vmrun.json"  // the Plan
	Output   = "/dev/ttyS1"   // the program's standard output and error
	Report   = "/dev/ttyS2"   // the Verdict, one line of JSON
	Console  = "/dev/console" // the kernel's, and this package's own complaints
)

// Cgroup hierarchies a machine can have.
const (
	CgroupV1 = "v1" // memory and others each in a hierarchy of their own
	CgroupV2 = "v2" // one hierarchy
)

// Plan is what the first process does. The host writes it.
type Plan struct {
	Modules []string `json:"modules,omitempty"` // to load before the program starts: arguments of modprobe
	Cgroup  string   `json:"cgroup"`            // CgroupV1 or CgroupV2
	Args    []string `json:"args,omitempty"`    // the program and its arguments; none: end at once, with 0
	Env     []string `json:"env,omitempty"`
	Dir     string   `json:"dir,omitempty"`
}

// Verdict is how the program ended.
type Verdict struct {
	Exit   int    `json:"exit"`             // its exit code
	Signal int    `json:"signal,omitempty"` // that ended it; then Exit is 0
	Error  string `json:"error,omitempty"`  // it was not started at all
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
