package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
)

// diagnoseDir is the folder of diagnoses in the state-dir.
const diagnoseDir = "diagnose"

func dirOf(stateDir string) string { return filepath.Join(stateDir, diagnoseDir) }

// dirByHand is for runs of a person while an agent has the other.
func dirByHand(stateDir string) string { return filepath.Join(dirOf(stateDir), "by-hand") }

// allDirs are those that a state folder may have runs in.
func allDirs(stateDir string) []string { return []string{dirOf(stateDir), dirByHand(stateDir)} }

// lockDiagnoses makes sure that no other process has a folder, which it makes where it is missing:
// the one that has the run of an id; else the agent's, where no agent runs.
func lockDiagnoses(stateDir, id string) (dir string, unlock func(), err error) {
	all := allDirs(stateDir)
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
			return "", nil, fmt.Errorf("%w; --state-dir names another folder", err)
		case locked.Who == worker.Agent && i+1 < len(all): // it goes on beside
		case locked.Who == worker.Agent:
			return "", nil, fmt.Errorf("%s is with the agent, which runs: only what has ended can be shown; leave --id out to begin another", cmp.Or(id, dir))
		default:
			return "", nil, fmt.Errorf("another diagnosis runs with %s; --state-dir names another folder", dir)
		}
	}
	return "", nil, errors.New("no folder for diagnoses") // there is one at least
}
