// Package artifact stores output of operations that is too big for a result: stacks, profiles,
// captures. A store is a folder on the node's disk with a subfolder for each diagnosis, limited by
// a budget in bytes.
//
// Artifacts of a running diagnosis ([Store.Begin] to [Run.End]) are never evicted. To make room,
// the store evicts all artifacts of the diagnosis that ended first. If only running diagnoses are
// left, a Write stores as much as fits and fails with [operation.ErrArtifactBudget]. [Store.Stats]
// counts what was truncated, refused or evicted.
//
// An artifact is written under a temporary name and renamed on Close, so that each artifact is
// complete, even after kill -9: [Open] removes and counts incomplete files. Size and SHA-256 are in
// the folder's .index, with one JSON object a line. For an artifact that is missing there, they are
// computed again.
//
// An operation may have its own folder below [Config.Storage] ([Run.Of]). The diagnosis' subfolder
// there counts towards the budget, and is kept and removed together with the one in the store,
// whose .index names it. Its disk may hang while the store's does not. Then calls fail after a
// timeout, further calls fail at once, and files that could not be read or removed are left to the
// next [Open].
//
// The content is not inspected. Folders are 0700 and files 0600, because profiles and captures
// contain secrets.
package artifact
