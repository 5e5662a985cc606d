// Package diagnosis reads the Diagnoses that ran on a node from its state folder, and formats them: a
// line for each operation, a summary, a JSON or YAML document.
package diagnosis

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
)

// Folder is the name of the folder of Diagnoses in the state folder.
const Folder = "diagnose"

// Dir returns the folder of the agent's runs.
func Dir(stateDir string) string { return filepath.Join(stateDir, Folder) }

// DirByHand returns the folder for runs that a person starts while an agent has locked the other.
func DirByHand(stateDir string) string { return filepath.Join(Dir(stateDir), "by-hand") }

// Dirs returns all folders of runs in a state folder.
func Dirs(stateDir string) []string { return []string{Dir(stateDir), DirByHand(stateDir)} }

// Lock locks the folder for a run against other processes, and creates it if it is missing. It is the
// folder that has the run with this id, or else the agent's folder if no agent runs, or else the
// one for runs by hand.
func Lock(stateDir, id string) (dir string, unlock func(), err error) {
	all := Dirs(stateDir)
	for _, dir := range all {
		if _, err := runner.ReadSaved(worker.Checkpoints(dir), id); err == nil {
			all = []string{dir}
			break
		}
	}
	for i, dir := range all {
		unlock, err := worker.Lock(dir, "diagnose run")
		locked, other := errors.AsType[*worker.LockedError](err)
		switch {
		case err == nil:
			return dir, unlock, nil
		case !other:
			return "", nil, fmt.Errorf("%w; choose another folder with --state-dir", err)
		case locked.Who == worker.Agent && i+1 < len(all): // try the folder for runs by hand
		case locked.Who == worker.Agent:
			return "", nil, fmt.Errorf("%s belongs to the running agent: only completed runs can be shown; omit --id to start a new run", cmp.Or(id, dir))
		default:
			return "", nil, fmt.Errorf("another diagnosis is running in %s; choose another folder with --state-dir", dir)
		}
	}
	return "", nil, errors.New("no folder for diagnoses") // not reached: Dirs is never empty
}
