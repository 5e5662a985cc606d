// Package artifact keeps what operations found that is too big for a result: stacks,
// profiles, captures. It is a folder on the node's disk with a folder a diagnosis, under
// a budget of bytes.
//
// While a diagnosis runs ([Store.Begin] to [Run.End]) its artifacts stay. When room is
// short the artifacts of the diagnosis that ended first go, all at once; where only
// running ones are left a Write takes what there is room for and fails with
// [operation.ErrArtifactBudget]. What was cut, refused or given up is counted
// ([Store.Stats]).
//
// An artifact has another name while it is written and is renamed when it is closed, so
// whatever has a name is whole, after kill -9 too: [Open] removes and counts what was
// left half written. Its size and SHA-256 are in the folder's .index, a JSON object a
// line; one that is missing there is computed again.
//
// An operation may have a folder of its own below [Config.Storage] ([Run.Of]): the
// diagnosis' folder in it counts, stays and goes with the one here, whose .index names it.
//
// The content is not looked at. Folders are 0700 and files 0600: profiles and captures
// have secrets in them.
package artifact
