package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
)

// diagnoseDir is their folder in the state-dir.
const diagnoseDir = "diagnose"

// diagnoseDirs are the folders of diagnoses below the state-dir.
type diagnoseDirs struct{ root, checkpoints, artifacts string }

func dirsOf(stateDir string) diagnoseDirs { return dirsAt(filepath.Join(stateDir, diagnoseDir)) }

// dirsByHand are for runs of a person while an agent has the others.
func dirsByHand(stateDir string) diagnoseDirs {
	return dirsAt(filepath.Join(stateDir, diagnoseDir, "by-hand"))
}

func dirsAt(root string) diagnoseDirs {
	return diagnoseDirs{root, worker.Checkpoints(root), worker.Artifacts(root)}
}

// allDirs are those that a state folder may have runs in.
func allDirs(stateDir string) []diagnoseDirs {
	return []diagnoseDirs{dirsOf(stateDir), dirsByHand(stateDir)}
}

// lockDiagnoses makes sure that no other process has the folders, which it makes where they
// are missing: those that have the run of an id; else the agent's, where no agent runs.
func lockDiagnoses(stateDir, id string) (diagnoseDirs, func(), error) {
	all := allDirs(stateDir)
	for _, dirs := range all {
		if _, err := runner.ReadSaved(dirs.checkpoints, id); err == nil {
			all = []diagnoseDirs{dirs}
			break
		}
	}
	for i, dirs := range all {
		unlock, err := worker.Lock(dirs.root, "diagnose run")
		locked, other := errors.AsType[*worker.LockedError](err)
		switch {
		case err == nil:
			return dirs, unlock, nil
		case !other:
			return diagnoseDirs{}, nil, fmt.Errorf("%w; --state-dir names another folder", err)
		case locked.Who == worker.Agent && i+1 < len(all): // it goes on beside
		case locked.Who == worker.Agent:
			return diagnoseDirs{}, nil, fmt.Errorf("%s is with the agent, which runs: only what has ended can be shown; leave --id out to begin another", cmp.Or(id, dirs.root))
		default:
			return diagnoseDirs{}, nil, fmt.Errorf("another diagnosis runs with %s; --state-dir names another folder", dirs.root)
		}
	}
	return diagnoseDirs{}, nil, errors.New("no folder for diagnoses") // there is one at least
}
